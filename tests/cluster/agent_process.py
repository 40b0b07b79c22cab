"""The Slurm agent as a process of its own, as it runs at a site."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from stagewatch.demo.stack import free_ports
from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.keeping import Keeper
from tests.cluster.independent import Numbers
from tests.exposition import samples
from tests.waiting import wait_for


class AgentProcess:
    """One agent with short intervals; the keeper ends it if the test does not."""

    def __init__(self, keeper: Keeper, slurm: SlurmCluster, directory: Path, *flags: str) -> None:
        self._keeper = keeper
        self.port = free_ports(1)[0]
        self.log = directory / f"agent-{self.port}.log"
        intervals = {
            "collector.slurm_queue.interval": "1s",
            "collector.slurm_nodes.interval": "1s",
            "collector.slurm_events.interval": "500ms",
            "collector.slurm_jobs.interval": "1s",
            "collector.slurm_holdings.interval": "1s",
            "collector.slurm_controller.interval": "1s",
            "collector.slurm_sources.interval": "200ms",
            "collector.slurm_discovery.interval": "500ms",
            "jobs-interval": "1s",
            "nodes-interval": "1s",
            "accounting-interval": "1s",
            "diagnostics-interval": "1s",
            "ping-interval": "1s",
            "timeout": "1s",
            "accounting-timeout": "2s",
        }
        argv = [
            *(sys.executable, "-m", "stagewatch.cli", "slurm", f"--listen=127.0.0.1:{self.port}"),
            f"--state-dir={directory / 'state'}",
            *(f"--{key.replace('_', '-')}={value}" for key, value in intervals.items()),
            *flags,
        ]
        path = os.pathsep.join(sys.path)
        env = {**slurm.env, "PYTHONPATH": path}
        self.pid = keeper.spawn(argv, env=env, log=self.log, cwd=directory)
        wait_for(self._answers, f"the agent to answer: {self.text_of_log()}")

    def _answers(self) -> bool:
        assert self._keeper.status(self.pid) is None, self.text_of_log()
        try:
            return requests.get(self.url("/-/healthy"), timeout=5).ok
        except requests.ConnectionError:
            return False

    def url(self, path: str) -> str:
        """The address of a page."""
        return f"http://127.0.0.1:{self.port}{path}"

    def text_of_log(self) -> str:
        """What the agent has logged."""
        return self.log.read_text() if self.log.exists() else ""

    def scrape(self) -> Numbers:
        """The exposition: numbers by name and labels."""
        answer = requests.get(self.url("/metrics"), timeout=30)
        answer.raise_for_status()
        return {
            (name, *(label for _, label in labels)): value
            for name, labels, value in samples(answer.text)
        }

    def value(self, *key: str) -> float | None:
        """One number of the exposition."""
        return self.scrape().get(key)

    def wait(self, condition: Callable[[Numbers], Any], what: str, limit: float = 90) -> Numbers:
        """The first exposition that meets a condition."""

        def met() -> Numbers | None:
            found = self.scrape()
            return found if condition(found) else None

        try:
            return wait_for(met, what, limit)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text_of_log()[-3000:]}") from None

    def discovered(self, path: str = "/sd") -> Any:
        """Service discovery's answer."""
        answer = requests.get(self.url(path), timeout=30)
        answer.raise_for_status()
        assert answer.headers["Content-Type"] == "application/json"
        return answer.json()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the agent; returns its exit status."""
        os.kill(self.pid, number)
        return wait_for(
            lambda: (status := self._keeper.status(self.pid)) is not None and (status,),
            "the agent to end",
        )[0]
