"""A helper process that is the fault as long as it runs: a hog of stress-ng, a holder of memory."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.errors import SourceError
from stagewatch.faults.commands import Commands, shown
from stagewatch.faults.identity import Gone, tagged
from stagewatch.faults.steps import Step

PATIENCE_SECONDS = 3.0

_running: dict[str, subprocess.Popen[bytes]] = {}
"""Those that this process has started, by the fault's id."""


@dataclass(frozen=True, slots=True)
class Helper(Step):
    """Runs a command in the background; whatever it forks is ended with it."""

    id: str
    argv: tuple[str, ...]
    log: str
    environ: tuple[tuple[str, str], ...] = ()

    def doing(self) -> list[str]:
        settings = "".join(f"{name}={value} " for name, value in self.environ)
        return [f"{settings}{shown(self.argv)} &"]

    def undoing(self) -> list[str]:
        return [
            f"kill -TERM, after {PATIENCE_SECONDS:g} s kill -KILL, each process with "
            f"STAGEWATCH_FAULT_ID={self.id} in its environment"
        ]

    def do(self, commands: Commands) -> None:
        setting = [f"{name}={value}" for name, value in self.environ]
        prefix = ["env", *setting] if setting else []
        _running[self.id] = commands.start(*prefix, *self.argv, log=Path(self.log))

    def undo(self, commands: Commands) -> list[str]:
        begun = time.monotonic()
        ended: list[str] = []
        while found := tagged(self.id):
            waited = time.monotonic() - begun
            if waited > 4 * PATIENCE_SECONDS:
                raise SourceError(f"processes {[each.pid for each in found]} do not end")
            gentle = waited < PATIENCE_SECONDS
            for each in found:
                number = signal.SIGTERM if gentle else signal.SIGKILL
                with contextlib.suppress(Gone):
                    each.send(number)
                line = f"kill -{number.name.removeprefix('SIG')} {each.pid}"
                if line not in ended:
                    ended.append(line)
            time.sleep(0.05)
        Path(self.log).unlink(missing_ok=True)
        return ended

    def over(self) -> str:
        process = _running.get(self.id)
        if process is None or process.poll() is None:
            return ""
        try:
            said = Path(self.log).read_text(errors="replace").strip().splitlines()[-3:]
        except OSError:
            said = []
        return f"{self.argv[0]} has ended: {' / '.join(said) or 'it said nothing'}"
