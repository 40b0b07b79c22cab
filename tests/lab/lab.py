"""A cluster of real processes: node agents, jobs on them, and Prometheus with the shipped rules.

Every job gets an id of its own, so any number of them run side by side in one lab.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.demo.rank import Board
from stagewatch.demo.stack import Stack, free_port, only
from stagewatch.prometheus.api import Series
from tests.running import clean_environ

_GIVE_WAY = 'echo 19 2>/dev/null >/proc/self/autogroup; exec nice -n 19 "$@"'
NICE = ("sh", "-c", _GIVE_WAY, "sh")
"""Ranks give way to agents and Prometheus, for which a real node has cores to spare.  Every
session is a group of its own to the scheduler, and nice(1) counts only within: sched(7)."""
AT_WORK = ("sh", "-c", 'echo 0 2>/dev/null >/proc/self/autogroup; exec "$@"', "sh")
"""Before ranks that compute, which have a core each on a real node: not so starved by those that
only spin that they look like them."""
COLLECTORS = ("stages", "ranks", "work")
LAPS_AHEAD = 3


@dataclass
class Job:
    """Ranks of one job and role over the nodes of a lab."""

    lab: Lab
    job_id: str
    role: str
    directory: Path
    nodes: list[str]
    """Node of each rank."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.nodes)

    def pid(self, rank: int) -> int:
        """As the rank itself sees it; 0 before it has begun."""
        try:
            return int((self.directory / f"pid.{rank}").read_text() or 0)
        except FileNotFoundError:
            return 0

    def order(self, text: str, *ranks: int) -> None:
        """Tell ranks (all, if none is given) what to do in a lap that none has begun yet.

        `text` is the place in the lap, what to do there, and an argument.
        """
        place, what = text.split(" ", 1)
        laps = Board(self.directory / "board", self.size).laps()
        due = laps + LAPS_AHEAD if laps else 0
        text = f"{place} {due} {what}"
        for rank in ranks or range(self.size):
            fresh = self.directory / f"new.{rank}"
            fresh.write_text(text)
            fresh.replace(self.directory / f"order.{rank}")

    def signal(self, number: signal.Signals, *ranks: int) -> None:
        """Send a signal to ranks (all, if none is given)."""
        for rank in ranks or range(self.size):
            self.processes[rank].send_signal(number)

    def query(self, metric: str, **labels: str) -> list[Series]:
        """The series of this job (both roles, if it has two)."""
        pairs = "".join(f', {name}="{value}"' for name, value in labels.items())
        return self.lab.api.query(f'{metric}{{job_id="{self.job_id}"{pairs}}}')

    def armed(self, stage: str = "train") -> bool:
        """Whether the rules know how long a step takes."""
        budget = "job_role_stage:rl_stall_budget:seconds"
        return bool(self.query(budget, stage=stage, role=self.role))

    def culprits(self) -> set[tuple[int, str, str]]:
        """Rank, node and evidence of those named."""
        return {
            (int(found.labels["rank"]), found.labels["node"], found.labels["evidence"])
            for found in self.query("job:rl_stall:culprit", role=self.role)
        }

    def firing(self, severity: str = "") -> set[str]:
        """The alerts that fire for this job, of a severity or of all."""
        of = {"severity": severity} if severity else {}
        found = self.query("ALERTS", alertstate="firing", role=self.role, **of)
        return {series.labels["alertname"] for series in found}

    def ever(self, metric: str, seconds: float, **labels: str) -> list[Series]:
        """Series that had a sample in the last `seconds`."""
        pairs = "".join(f', {name}="{value}"' for name, value in labels.items())
        selector = f'{metric}{{job_id="{self.job_id}"{pairs}}}[{int(seconds)}s]'
        return self.lab.api.query(f"count_over_time({selector})")

    def state(self) -> str:
        """What a person would look at."""
        classes = {
            (found.labels["role"], int(found.labels["rank"])): found.labels["class"]
            for found in self.query("rl_rank_wait_class")
        }
        excuses = [found.labels["excuse"] for found in self.query("job:rl_stall:excused")]
        active = [found.value for found in self.query("job:rl_stall:active")]
        return f"classes {classes}, active {active}, excuses {excuses}, firing {self.firing()}"

    def stop(self) -> None:
        """Kill its processes; the number of one that was waited for may be another's by now."""
        left = [process for process in self.processes if process.returncode is None]
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in left:
            process.wait()


class Lab(Stack):
    """Agents on so many nodes, with the given flags, and a Prometheus that scrapes them at 2 s."""

    def __init__(self, directory: Path, nodes: int, *flags: str) -> None:
        super().__init__(cache=directory, nodes=[f"node-{number}" for number in range(nodes)])
        self.service_environ = clean_environ({})
        self._flags = flags
        self.jobs: list[Job] = []

    def stop(self) -> None:
        """End everything; what is left of it dies with this process in any case."""
        for job in self.jobs:
            job.stop()
        super().stop()

    def job(
        self,
        job_id: str,
        ranks: Sequence[str] | int,
        *,
        role: str = "train",
        orders: str = "",
        prefix: Sequence[str] = (),
        program: str = "tests.lab.rank",
        **options: object,
    ) -> Job:
        """Start a job; `ranks` are the node of each, or how many to spread over all nodes.

        `prefix` is a command that runs another; `options` go to the rank (see `tests.lab.rank`),
        `orders` are in force from the beginning.
        """
        if isinstance(ranks, int):
            ranks = [self.nodes[rank * len(self.nodes) // ranks] for rank in range(ranks)]
        directory = self.directory / f"job-{job_id}-{role}"
        directory.mkdir()
        Board.create(directory / "board", len(ranks))
        job = Job(self, job_id, role, directory, list(ranks))
        self.jobs.append(job)
        if orders:
            job.order(orders)
        given = json.dumps({"job_id": job_id, "role": role} | options)
        for rank, node in enumerate(ranks):
            job.processes.append(
                self.children.start(
                    [
                        *(*NICE, *prefix, sys.executable, "-m", program),
                        *(str(directory), str(rank), str(len(ranks)), given),
                    ],
                    log=directory / f"log.{rank}",
                    environ=self.environ(node),
                )
            )
        return job

    def shell_job(self, node: str, size: int) -> Job:
        """Ranks that a shell started on one node, with no launcher that would name the job."""
        directory = self.directory / f"job-shell-{len(self.jobs)}"
        directory.mkdir()
        Board.create(directory / "board", size)
        options = json.dumps({"wait": "park"})
        loop = (
            f"for rank in $(seq 0 {size - 1}); do "
            f"{sys.executable} -m tests.lab.rank {directory} $rank {size} '{options}' & done; wait"
        )
        shell = self.children.start(
            [*NICE, "sh", "-c", loop], log=directory / "log", environ=self.environ(node)
        )
        job = Job(self, f"session-{shell.pid}", "train", directory, [node] * size, [shell])
        self.jobs.append(job)
        return job

    def environ(self, node: str) -> dict[str, str]:
        """What a rank on a node finds in its environment."""
        return clean_environ({"STAGEWATCH_DIR": str(self.record_dir(node))})

    def pause(self, seconds: float) -> None:
        """Stop agents, ranks and Prometheus together, as suspending the machine does."""
        everybody = [
            *self.services.values(),
            *(process for job in self.jobs for process in job.processes),
        ]
        for process in everybody:
            process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        for process in reversed(everybody):
            process.send_signal(signal.SIGCONT)

    def inspect(self, *arguments: str) -> tuple[int, str]:
        """Exit status and output of `stagewatch inspect`."""
        command = [sys.executable, "-m", "stagewatch.cli", "inspect", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        return done.returncode, done.stdout + done.stderr

    def begin(self) -> None:
        """Start the agents and Prometheus, and wait until all are scraped."""
        for node in self.nodes:
            self.agents[node] = f"127.0.0.1:{free_port()}"
            self.start_service(
                node,
                *(sys.executable, "-m", "stagewatch.cli", "node", "--listen", self.agents[node]),
                *("--record-dir", str(self.record_dir(node))),
                *("--fault-dir", str(self.fault_dir(node))),
                *(*only(COLLECTORS), *self._flags),
            )
        self.api = self.start_prometheus()
        everything = len(self.nodes) + 1
        self.wait(lambda: len(self.api.query("up == 1")) == everything, "all agents are scraped")
