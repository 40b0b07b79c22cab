"""Python snippets as real processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.processes import Children
from tests.waiting import wait_for


@dataclass
class Script:
    """A running snippet and the file that its output goes to."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def output(self) -> str:
        """All it has written so far."""
        return self.log.read_text(errors="replace")

    def said(self, text: str) -> None:
        """Wait until it has written this."""
        wait_for(lambda: text in self.output() or self._ended(), f"{text!r} in {self.output()}")
        assert text in self.output(), self.output()

    def finish(self, status: int | None = 0) -> str:
        """Wait for its end and return its output; any `status` will do if that is None."""
        wait_for(self._ended, f"the end of a process that said {self.output()!r}")
        assert status in (None, self.process.returncode), self.output()
        return self.output()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def _ended(self) -> bool:
        return self.process.poll() is not None


class Python:
    """Starts snippets that end with the test, also if the test run is killed."""

    def __init__(self, children: Children, directory: Path) -> None:
        self._children = children
        self._directory = directory
        self._count = 0

    def __call__(
        self, code: str, *arguments: object, prefix: tuple[str, ...] = (), **environ: str
    ) -> Script:
        """Run `code`; `prefix` is a command that runs another, such as strace."""
        self._count += 1
        file = self._directory / f"script-{self._count}.py"
        file.write_text(textwrap.dedent(code))
        log = self._directory / f"script-{self._count}.log"
        log.touch()
        if prefix:  # which ends with the test run by itself, but may not take along what it runs
            prefix = (*prefix, "setpriv", "--pdeathsig", "KILL")
        command = [*prefix, sys.executable, "-u", str(file), *map(str, arguments)]
        return Script(self._children.start(command, log=log, environ=clean_environ(environ)), log)

    def ready(self, code: str, *arguments: object, **more: Any) -> Script:
        """Run it, and wait until it has said that it is."""
        script = self(code, *arguments, **more)
        script.said("ready")
        return script


def run_stagewatch(
    *arguments: object, cwd: Path | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    """A command of ours to its end, with nothing of this environment but what is given."""
    return subprocess.run(
        [sys.executable, "-m", "stagewatch.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=clean_environ(environ),
        timeout=250,
        check=False,
    )


def output(*command: object, **more: Any) -> str:
    """What any command prints, which must end well."""
    argv = list(map(str, command))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean_environ(more: dict[str, str]) -> dict[str, str]:
    """This environment without what a launcher or a site may have set, and with `more`."""
    launchers = (
        *("SLURM_", "OMPI_", "PMI", "HYDI_", "MASTER_", "STAGEWATCH_", "TORCHELASTIC_"),
        *("RAY_", "PBS_", "LSB_"),
    )
    names = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "JOB_COMPLETION_ID"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(launchers) and name not in names
    }
    return kept | more
