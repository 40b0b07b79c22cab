"""A real node agent as a process, for tests that start, break and stop it."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from pathlib import Path

from stagewatch.demo.stack import free_port
from tests.exposition import Series, series_of
from tests.waiting import wait_for

TRAINER = """
import sys, time, stagewatch
stagewatch.init(job_id="540", rank=int(sys.argv[1]), world_size=8)
step = 0
while True:
    step += 1
    with stagewatch.stage("train", step=step):
        stagewatch.replicated("step", step)
        time.sleep(0.05)
"""


class NodeAgent:
    """`stagewatch node` on a free port, with directories of its own."""

    def __init__(self, directory: Path, *arguments: str, **environ: str) -> None:
        self.directory = directory
        self.ranks = directory / "ranks"
        self.faults = directory / "faults"
        for path in (self.ranks, self.faults):
            path.mkdir(exist_ok=True)
        self.arguments = [
            *("--record-dir", str(self.ranks)),
            *("--fault-dir", str(self.faults)),
            *("--collector.gpu.release-file", str(directory / "release-gpu")),
            *arguments,
        ]
        self.environ = os.environ | environ
        self.log = directory / "agent.log"
        self.port = 0

    def start(self, port: int | None = None) -> None:
        """Start, on a free port if none is given, and wait until it answers."""
        self.port = port or free_port()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "node", "--listen", f"127.0.0.1:{self.port}", *self.arguments],
                stdout=log,
                stderr=log,
                env=self.environ,
            )
        wait_for(self.healthy, "the agent answers")

    def healthy(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return self.get("/-/healthy")[0] == 200

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 while nothing listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def series(self) -> Series:
        """Every series of `/metrics`."""
        status, body = self.get("/metrics")
        assert status == 200, body
        return series_of(body)

    def value(self, name: str, **labels: str) -> float | None:
        """The first series of that name that has these labels."""
        status, body = self.get("/metrics")
        assert status == 200, body
        lines = re.findall(rf"(?m)^{name}[ {{].*", body)
        for (_, pairs), value in series_of("\n".join(lines)).items():
            if labels.items() <= dict(pairs).items():
                return value
        return None

    def stop(self) -> None:
        """End it by force if it still runs."""
        self.process.kill()
        self.process.wait()


COMMAND = (sys.executable, "-m", "stagewatch.cli")
