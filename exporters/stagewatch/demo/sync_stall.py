"""The sync stall: a job over two node agents hangs, and the alerts name the rank that began it."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import stagewatch
from stagewatch.demo.job import SKEW_SECONDS, start_rank
from stagewatch.demo.rank import Board
from stagewatch.demo.scenario import DemoOptions, Progress, keep, own_command
from stagewatch.demo.stack import Stack
from stagewatch.faults.markers import Marker
from stagewatch.prometheus.api import Alert, PrometheusApi
from stagewatch.prometheus.selectors import select

NODES = ("node-a", "node-b")
RANKS = 8
JOB_ID = "540"
RECORDINGS = Path(stagewatch.__path__[0]) / "recordings"
ARMED = select("job_role_stage:rl_stall_budget:seconds", job_id=JOB_ID, stage="train")
EXPECTED = "JobStalled"
"""As a suspicion it names the culprit; a page waits for a minute at least."""


class DemoCluster(Stack):
    """All processes and files of the demo; leaving the context ends and removes them."""

    def __init__(self, *, cache: Path) -> None:
        super().__init__(cache=cache, nodes=NODES)
        self.early = random.randrange(RANKS)  # noqa: S311 - any rank will do
        self.ranks: list[subprocess.Popen[bytes]] = []
        self._board = self.directory / "board"

    def start(self) -> PrometheusApi:
        """Start agents, ranks and Prometheus, and wait until it answers."""
        self.start_job()
        return self.start_prometheus()

    def start_job(self) -> None:
        """Start agents and ranks alone."""
        for node in NODES:
            recorded = not Path("/dev/nvidiactl").exists()
            recording = str(RECORDINGS / f"h200-{node}.jsonl")
            flags = ["--collector.gpu.recording", recording] if recorded else []
            self.start_agent(node, *flags)
        Board.create(self._board, RANKS)
        for rank in range(RANKS):
            self._start_rank(rank)

    def steps(self) -> int:
        """The number of steps that the job has begun."""
        return Board(self._board, RANKS).laps()

    def inject_stall(self) -> float:
        """End the job's time and write a fault marker; returns when that was (Unix seconds)."""
        now = time.time()
        Board(self._board, RANKS).set_stop(now + SKEW_SECONDS)
        self.mark(
            Marker(
                id="sync-stall",
                fault_type="sync_stall",
                start=now,
                target_worker=f"rank_{self.early}",
                expected_failure_stage="train",
                scenario="S0",
            )
        )
        return now

    def _start_rank(self, rank: int) -> None:
        environ = os.environ | {
            "STAGEWATCH_DIR": str(self.record_dir(_node(rank))),
            "STAGEWATCH_JOB_ID": JOB_ID,
        }
        log, early = self.directory / f"rank-{rank}.log", rank == self.early
        self.ranks.append(
            start_rank(
                self.children, self._board, rank, RANKS, early=early, environ=environ, log=log
            )
        )


def _node(rank: int) -> str:
    return NODES[rank * len(NODES) // RANKS]


def play(options: DemoOptions) -> int:
    """Play the scenario; exit status 0 if the stack named the rank that left early."""
    show = Progress()
    show.say("finding Prometheus (on the PATH, or as a package)")
    with DemoCluster(cache=options.cache) as cluster:
        show.say(f"starting {len(NODES)} node agents, {RANKS} ranks of job {JOB_ID}, Prometheus")
        api = cluster.start()
        show.begun(cluster)
        show.say("training; the rules learn how long a step may take")
        show.wait_until(lambda: bool(api.query(ARMED)), 120, "the rules to learn a budget")
        steps = options.baseline_steps
        show.wait_until(lambda: cluster.steps() >= steps, 120 + 4 * steps, f"{steps} steps")
        injected = cluster.inject_stall()
        show.say(
            f"step {cluster.steps()}: one rank leaves the loop early, since its clock is ahead"
        )
        fired = _watch(api, show, injected)
        named = _report(cluster, fired)
        if options.keep:
            inject = "fault inject process-stop --target 540:5 --for 30s"
            keep(
                *(f"{own_command()} inspect {cluster.options(one)['inspect']}" for one in NODES),
                f"{own_command()} {inject} {cluster.options(_node(5))['fault']}",
            )
        api.close()
    return 0 if named else 1


def _watch(api: PrometheusApi, show: Progress, injected: float) -> dict[str, tuple[float, Alert]]:
    """The alerts that fire, each with the seconds since the injection."""
    fired: dict[str, tuple[float, Alert]] = {}

    def has_fired() -> bool:
        for alert in api.alerts():
            for_people = "notify" not in alert.labels
            names_nobody = alert.name == EXPECTED and "rank" not in alert.labels
            new = alert.state == "firing" and alert.name not in fired
            if new and for_people and not names_nobody:
                fired[alert.name] = (time.time() - injected, alert)
                show.say(f"ALERT {alert.name}: {alert.annotations['description']}")
        return EXPECTED in fired

    show.wait_until(has_fired, 120, f"{EXPECTED} to fire")
    return fired


def _report(cluster: DemoCluster, fired: dict[str, tuple[float, Alert]]) -> bool:
    """Print what fired; returns whether the culprit named is the rank that really left."""
    rank, node, pid = cluster.early, _node(cluster.early), cluster.ranks[cluster.early].pid
    labels = fired[EXPECTED][1].labels
    named = (labels["rank"], labels["node"], labels["pid"]) == (str(rank), node, str(pid))
    print("\nAlert              fired after the rank left")
    for name, (after, _) in sorted(fired.items(), key=lambda item: item[1][0]):
        print(f"{name:<18} {after:5.1f} s")
    print(
        f"\nCulprit named      rank {labels['rank']} on {labels['node']}, pid {labels['pid']}, "
        f"evidence {labels['evidence']}"
        f"\nReally left early  rank {rank} on {node}, pid {pid}"
        f"\nVerdict            the {'right' if named else 'WRONG'} rank was named"
    )
    return named
