"""The demo as a newcomer runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from tests.waiting import wait_for


class Demo:
    """One run of `stagewatch demo` with a temporary directory of its own."""

    def __init__(self, directory: Path, temporary: Path, *arguments: str) -> None:
        self.directory = directory
        self._temporary = temporary
        with (directory / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stagewatch.cli", "demo", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
                cwd=directory,
            )

    def text(self) -> str:
        """What it has said."""
        return (self.directory / "output").read_text()

    def training(self) -> bool:
        """Whether it has started everything."""
        assert self.process.poll() is None, self.text()
        return "training" in self.text()

    def processes(self) -> list[psutil.Process]:
        """Everything that it started and that still runs, whoever its parent is now."""
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("TMPDIR") == str(self._temporary)
                if mine and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def nothing_left(self) -> bool:
        """Whether no process and no file is left."""
        return not self.processes() and not list(self._temporary.iterdir())

    def end(self) -> None:
        """Kill it, and see that nothing is left."""
        self.process.kill()
        self.process.wait()
        wait_for(self.nothing_left, "the demo leaves nothing behind")
