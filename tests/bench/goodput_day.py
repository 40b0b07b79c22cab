"""The scripted day: 40 jobs on a real Slurm of 20 pretended GPUs, and what happens to them."""

from __future__ import annotations

import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import requests

from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.lab import TRY_AGAIN, SlurmLab

INTERVAL = 3
"""Seconds between two evaluations, 15 as shipped: five minutes stand for a day of 25."""
NODES = ("n1", "n2", "n3", "n4", "n5")
GPUS = 4
SPEC = ClusterSpec(
    nodes=(NodeSpec(NODES, gpus=(("h200", GPUS),)),),
    partitions=("train Nodes=n[1-5] Default=YES DefMemPerCPU=100",),
    name="day",
    settings=(("RequeueExit", str(TRY_AGAIN)), ("MessageTimeout", "3")),
)
_UPDATE = ("scontrol", "update", "nodename=n5")
USUAL = "init:3 rollout:6 train:7 checkpoint:5 train:6"
IDLE_SECONDS = 12.0
"""Without jobs, before the first and after the last."""


OUTAGE_SECONDS = 15.0
"""For which an agent or Prometheus is gone: longer than an answer of Slurm counts."""


@dataclass(frozen=True, slots=True)
class Work:
    """A job: a rank for each GPU that follows the plan; without one, no rank."""

    gpus: int
    plan: str = USUAL
    nodes: int = 1
    fails_first: bool = False
    """Whether its first run gives up before the last part of the plan, and asks to be requeued."""


WIDE = Work(8, "init:3 rollout:8 train:10 checkpoint:5 train:27", nodes=2)
STALLED = Work(4, "init:3 train:8 still:32 train:6")
CANCELLED = Work(2, "init:3 rollout:10 train:120")
GIVES_UP = Work(2, "init:3 rollout:6 checkpoint:5 train:14 eval:6", fails_first=True)
IDLE_INSIDE = Work(2, "init:3 rollout:6 idle:9 train:7")
WITHOUT_CLIENT = Work(1, "")
FIRST = (WIDE, STALLED, CANCELLED, GIVES_UP, IDLE_INSIDE, WITHOUT_CLIENT, *(Work(2),) * 6)
SECOND = (WITHOUT_CLIENT, GIVES_UP, IDLE_INSIDE, *(Work(2),) * 8, *(Work(1),) * 3)
THIRD = (WITHOUT_CLIENT, *(Work(4),) * 3, *(Work(2),) * 6, *(Work(1),) * 4)


@dataclass
class Day:
    """The lab with what was done to it, and when."""

    lab: SlurmLab
    jobs: list[str] = field(default_factory=list)
    silent: defaultdict[str, list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """When the agents of nodes did not answer."""
    absences: list[tuple[str, float, float, str]] = field(default_factory=list)
    """Nodes that were drained or reserved: node, start, end and which of these."""
    gaps: list[tuple[float, float]] = field(default_factory=list)
    """When Slurm's agent, and then Prometheus, was gone, so that nothing can be counted."""
    began: float = field(default_factory=time.time)
    ended: float = 0.0

    @property
    def logs(self) -> Path:
        """Where each job has a folder with its ranks' logs."""
        return self.lab.directory / "jobs"

    def play(self) -> None:
        """Play it from its idle beginning to its idle end."""
        lab, slurm = self.lab, self.lab.slurm
        self._at(IDLE_SECONDS, "12 jobs come", lambda: self._submit(FIRST))
        self._at(25, "n5 is drained", self._drain)
        self._at(45, "n4 is reserved", self._reserve)
        self._at(50, "14 more jobs come", lambda: self._submit(SECOND))
        self._at(65, "a node of the widest job dies", self._kill_node)
        self._at(85, "the reservation ends", self._release)
        self._at(95, "the dead node comes back", self._revive_node)
        self._at(105, "n5 is resumed", self._resume)
        self._at(110, "14 more jobs come", lambda: self._submit(THIRD))
        self._at(120, "a job is cancelled", lambda: slurm.run("scancel", self.jobs[2]))
        self._at(135, "n1's agent restarts", lambda: self._restart_agent("n1"))
        self._at(150, "Slurm's agent restarts", self._restart_slurm_agent)
        self._at(180, "Prometheus restarts", self._restart_prometheus)
        lab.wait(lambda: not slurm.run("squeue", "-h"), "all jobs to end", limit=240)
        self._at(self._now() + IDLE_SECONDS, "the day ends", lambda: None)
        self.ended = time.time()

    def _now(self) -> float:
        return time.time() - self.began

    def _at(self, seconds: float, what: str, do: Callable[[], object]) -> None:
        """Do something so many seconds after the beginning, or at once if that is past."""
        time.sleep(max(0.0, seconds - self._now()))
        print(f"{self._now():6.1f} s  {what}", flush=True)
        do()

    def _submit(self, works: tuple[Work, ...]) -> None:
        for work in works:
            self.jobs.append(self._submit_one(work))

    def _submit_one(self, work: Work) -> str:
        place = f"{self.logs}/$SLURM_JOB_ID"
        rank = (
            f'STAGEWATCH_DIR={self.lab.directory}/"$SLURMD_NODENAME"/ranks '
            f"exec {sys.executable} -m tests.bench.day_rank {place} $PLAN"
        )
        lines = [f"mkdir -p {place}", f"export PLAN={shlex.quote(work.plan)}"]
        if work.fails_first:
            early = work.plan.rpartition(" ")[0]
            lines.append(
                f'[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] && export PLAN={shlex.quote(early)}'
            )
        lines += [
            "sleep 3",
            f"srun --wait=60 sh -c {shlex.quote(rank)}" if work.plan else "sleep 20",
        ]
        if work.fails_first:
            lines.append(f'[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] && exit {TRY_AGAIN}')
        lines += ["sleep 3", "exit 0"]
        return self.lab.slurm.submit(
            *("-N", str(work.nodes), f"--ntasks-per-node={work.gpus // work.nodes}", "--requeue"),
            f"--gres=gpu:h200:{work.gpus // work.nodes}",
            f"--export=ALL,PYTHONPATH={self.lab.environ['PYTHONPATH']}",
            script="\n".join(lines),
        )

    def _drain(self) -> None:
        self.lab.slurm.run(*_UPDATE, "state=drain", "reason=fan")
        self._drained_from = time.time()

    def _resume(self) -> None:
        self.lab.slurm.run(*_UPDATE, "state=resume")
        self.absences.append(("n5", self._drained_from, time.time(), "drained"))

    def _reserve(self) -> None:
        self.lab.slurm.run(
            *("scontrol", "create", "reservation", "reservationname=class", "starttime=now"),
            *("duration=60", "users=root", "nodes=n4", "flags=ignore_jobs"),
        )
        self._reserved_from = time.time()

    def _release(self) -> None:
        self.lab.slurm.run("scontrol", "delete", "reservationname=class")
        self.absences.append(("n4", self._reserved_from, time.time(), "reserved"))

    def _kill_node(self) -> None:
        self._dead = self.lab.nodes_of(self.jobs[0])[-1]
        self._died = time.time()
        self.lab.power_off(self._dead)

    def _revive_node(self) -> None:
        """Its agent first: Slurm gives a node work as soon as it answers."""
        self.lab.start_agent(self._dead)
        self._wait_answer(self._dead)
        self.silent[self._dead].append((self._died, time.time()))
        self.lab.slurm.start_slurmd(self._dead)

    def _restart_agent(self, node: str) -> None:
        stopped = time.time()
        self.lab.stop_service(node)
        time.sleep(OUTAGE_SECONDS)
        self.lab.start_agent(node)
        self._wait_answer(node)
        self.silent[node].append((stopped, time.time()))

    def _restart_slurm_agent(self) -> None:
        stopped = time.time()
        self.lab.stop_service("slurm")
        time.sleep(OUTAGE_SECONDS)
        self.gaps.append((stopped, time.time()))
        self.lab.start_slurm_agent()
        self._wait_answer("slurm")

    def _restart_prometheus(self) -> None:
        stopped = time.time()
        self.lab.stop_service("prometheus")
        time.sleep(OUTAGE_SECONDS)
        self.gaps.append((stopped, time.time()))
        self.lab.start_prometheus()

    def _wait_answer(self, name: str) -> None:
        def answers() -> bool:
            with suppress(requests.RequestException):
                return requests.get(f"http://{self.lab.address(name)}/metrics", timeout=5).ok
            return False

        self.lab.wait(answers, f"the agent {name} to answer")
