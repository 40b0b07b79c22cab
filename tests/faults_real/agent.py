"""A real node agent, started by its command and asked by HTTP."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import requests

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.exposition import Series, series_of
from tests.waiting import wait_for


class Agent:
    """One agent with the given flags; its other collectors are off unless asked for."""

    def __init__(self, children: Children, directory: Path, *flags: str) -> None:
        self.port = free_port()
        self.log = directory / f"agent-{self.port}.log"
        self.process = children.start(
            [sys.executable, "-m", "stagewatch.cli", "node", "--listen", f"127.0.0.1:{self.port}",
             "--no-collector.gpu.enabled", *flags],
            environ=os.environ | {"STAGEWATCH_DIR": str(directory / "ranks")},
            log=self.log,
        )  # fmt: skip
        wait_for(self.healthy, f"the agent answers, see {self.log}")

    def healthy(self) -> bool:
        """Whether it says so."""
        try:
            return requests.get(f"http://127.0.0.1:{self.port}/-/healthy", timeout=30).ok
        except requests.ConnectionError:
            return False

    def scrape(self) -> Series:
        """All its series."""
        answer = requests.get(f"http://127.0.0.1:{self.port}/metrics", timeout=30)
        answer.raise_for_status()
        return series_of(answer.text)

    def value(self, metric: str, **labels: str) -> float | None:
        """One series, `None` while it is absent; an empty label is the same as none."""
        wanted = frozenset((name, value) for name, value in labels.items() if value)
        return self.scrape().get((metric, wanted))

    def labels(self, metric: str) -> Sequence[dict[str, str]]:
        """The label sets of a metric."""
        return [dict(labels) for name, labels in self.scrape() if name == metric]
