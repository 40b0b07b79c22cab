"""Prometheus writing to a store, as processes: what the tests of deploy/scale need."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.serving import Reply, Request, WebServer
from tests.waiting import answers, wait_for

Samples = dict[float, float]
"""Values by Unix time."""


class Server:
    """Something with a URL and Prometheus' query API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: Any) -> Any:
        """The `data` of an answer.  Raises `OSError` if there is none, `ValueError` with the
        message of a query that was refused."""
        try:
            return self.page(f"{path}?{urllib.parse.urlencode(parameters)}")["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(error.read().decode()) from None

    def page(self, path: str) -> Any:
        """A page in JSON.  Raises `OSError` if there is none."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.load(answer)

    def query(self, expression: str, **parameters: Any) -> list[dict[str, Any]]:
        """The elements of an instant query's result."""
        result = self.ask("/api/v1/query", query=expression, **parameters)["result"]
        assert isinstance(result, list)
        return result

    def samples(self, selector: str) -> dict[str, Samples]:
        """All that was scraped of some series in the last hour, by `node`."""
        return {
            each["metric"]["node"]: {time: float(value) for time, value in each["values"]}
            for each in self.query(f"{selector}[1h]")
        }

    def answers(self, path: str) -> bool:
        """Whether a page is served."""
        return answers(f"{self.url}{path}")


class Store(Server):
    """A VictoriaMetrics that can be stopped and started again with its data."""

    def __init__(self, children: Children, directory: Path) -> None:
        self._children = children
        self._directory = directory
        self._port = free_port()
        super().__init__(f"http://127.0.0.1:{self._port}")
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._process = self._children.start(
            [
                "victoria-metrics",
                f"-httpListenAddr=127.0.0.1:{self._port}",
                f"-storageDataPath={self._directory / 'store'}",
                "-retentionPeriod=1",
                "-search.latencyOffset=0s",
                "-search.disableCache",
                "-memory.allowedBytes=256MiB",
            ],
            log=self._directory / "store.log",
        )
        wait_for(lambda: self.answers("/health"), "the store answers")

    def stop(self) -> None:
        """End it as its unit would; it keeps what it has acknowledged."""
        self._process.terminate()
        self._process.wait()


class Prometheus(Server):
    """A Prometheus, or one as an agent, with a configuration given whole."""

    def __init__(
        self,
        children: Children,
        directory: Path,
        configuration: str,
        *flags: str,
        agent: bool = False,
        listen: str | None = None,
    ) -> None:
        if shutil.which("prometheus") is None:
            pytest.skip("needs prometheus, from Debian's package of that name")
        directory.mkdir(exist_ok=True)
        file = directory / "prometheus.yml"
        file.write_text(configuration)
        listen = listen or f"127.0.0.1:{free_port()}"
        super().__init__(f"http://{listen}")
        kind = [_agent_flag()] if agent else []
        data = f"--storage.{'agent' if agent else 'tsdb'}.path={directory / 'data'}"
        address = f"--web.listen-address={listen}"
        command = ["prometheus", f"--config.file={file}", address, data, *kind, *flags]
        children.start(command, log=directory / "prometheus.log")
        wait_for(lambda: self.answers("/-/ready"), "Prometheus is ready")

    def targets(self, job: str) -> list[str]:
        """The nodes that are scraped and up."""
        return [
            target["labels"]["node"]
            for target in self.ask("/api/v1/targets")["activeTargets"]
            if target["labels"]["job"] == job and target["health"] == "up"
        ]


def _agent_flag() -> str:
    """What makes Prometheus an agent: a flag from 3.0 on, a feature before."""
    help = subprocess.run(["prometheus", "--help"], capture_output=True, text=True, check=False)
    flag = re.search(r"--(\[no-\])?agent\s", help.stdout)
    return "--agent" if flag else "--enable-feature=agent"


class Pages(WebServer):
    """Every page is made when it is asked for."""

    def __init__(self, pages: Mapping[str, Callable[[], str]]) -> None:
        def answer(request: Request) -> Reply:
            page = pages.get(request.path)
            kind = "application/json" if request.path.startswith("/sd") else "text/plain"
            return Reply(page().encode(), kind=kind) if page else Reply(status=404)

        super().__init__(answer)


MISSING = [
    name for name in ("prometheus", "victoria-metrics", "vmalert") if shutil.which(name) is None
]
