"""`stagewatch fault inject` as a process of its own, as a user runs it."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

from stagewatch.cli import main
from stagewatch.core.processes import Children
from stagewatch.faults.markers import Marker, read_markers
from stagewatch.faults.processes import Identity, tagged
from tests.running import Script, clean_environ
from tests.waiting import wait_for

Prefix = tuple[str, ...]


def stopped(victim: Script) -> bool:
    """Whether a process is, as ps shows it."""
    return Path(f"/proc/{victim.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class Injector:
    """Runs `stagewatch fault` commands against markers and a journal of the test's own."""

    def __init__(self, children: Children, directory: Path) -> None:
        self._children = children
        self._directory = directory
        self._count = 0
        self.faults = directory / "faults"
        self.undo = directory / "undo"
        self.faults.mkdir()

    def start(self, kind: str, *flags: str, prefix: Prefix = (), **environ: str) -> Script:
        """Begin an injection in the background."""
        self._count += 1
        log = self._directory / f"inject-{self._count}.log"
        log.touch()
        process = self._children.start(
            [*prefix, *self.argv("inject", kind, *flags)], log=log, environ=self.environ(environ)
        )
        return Script(process, log)

    def hold(self, kind: str, *flags: str, prefix: Prefix = (), **environ: str) -> Script:
        """Begin one, and wait until the fault is there."""
        script = self.start(kind, *flags, "--for=600s", prefix=prefix, **environ)
        script.said("in force")
        return script

    def run(self, *argv: str, status: int = 0, prefix: Prefix = (), **environ: str) -> str:
        """Run a whole command; what it said on both streams."""
        done = subprocess.run(
            [*prefix, *self.argv(*argv)],
            env=self.environ(environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == status, done.stdout
        return done.stdout

    def refused(self, *argv: str, status: int, **environ: str) -> str:
        """A command that does nothing but say why; in this process, since that is faster."""
        said = io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environ(environ), clear=True),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            try:
                found = main(["fault", *argv])
            except SystemExit as ended:
                found = int(ended.code or 0)
        assert found == status, said.getvalue()
        return said.getvalue()

    def argv(self, *argv: str) -> list[str]:
        """A `stagewatch fault` command."""
        return [sys.executable, "-m", "stagewatch.cli", "fault", *argv]

    def environ(self, more: dict[str, str]) -> dict[str, str]:
        """As a user's, with directories of the test."""
        own = {
            "STAGEWATCH_FAULT_DIR": str(self.faults),
            "STAGEWATCH_UNDO_DIR": str(self.undo),
            "STAGEWATCH_DIR": str(self._directory / "ranks"),
            "XDG_STATE_HOME": str(self._directory / "state"),
        }
        return clean_environ(own | more)

    def left(self) -> list[str]:
        """The faults that are not undone yet."""
        return sorted(path.stem for path in self.undo.glob("*.undo"))

    def markers(self) -> list[Marker]:
        """What the node agent would see."""
        return read_markers(self.faults)[0]

    def helpers(self) -> list[Identity]:
        """The helpers of the faults in force."""
        return [each for id in self.left() for each in tagged(id)]

    def watchdog(self) -> Identity:
        """The one watchdog that runs for this test."""
        return wait_for(lambda: next(iter(self.watchdogs()), None), "a watchdog")

    def gone(self) -> None:
        """Wait until everything is undone, and its marker closed."""
        wait_for(lambda: not self.left(), "everything to be undone")
        assert all(marker.end is not None for marker in self.markers())
        wait_for(lambda: not self.watchdogs(), "the watchdog to end")

    def close(self) -> None:
        """Undo what a test that failed has left."""
        for watchdog in self.watchdogs():
            with contextlib.suppress(OSError):
                os.kill(watchdog.pid, signal.SIGCONT)
        if self.left():
            subprocess.run(
                self.argv("clear", "--all"),
                env=self.environ({}),
                check=False,
                capture_output=True,
                timeout=120,
            )

    def kill(self, script: Script) -> None:
        """Kill an injector and then its watchdog, before that can act."""
        watchdog = self.watchdog()
        watchdog.send(signal.SIGSTOP)
        script.kill()
        watchdog.send(signal.SIGKILL)
        wait_for(lambda: not watchdog.alive, "the watchdog's death")

    def watchdogs(self) -> list[Identity]:
        """Those of this test."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(Exception):
                argv = entry.read_bytes().decode().split("\0")
                if "stagewatch.faults.undo" in argv and str(self.undo) in argv:
                    found.append(Identity.of(int(entry.parent.name)))
        return found
