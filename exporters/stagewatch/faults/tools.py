"""Runs the system tools that inject and undo faults, and the helpers that are faults.

A tool has a time limit and is cut off from the terminal.  Tools and helpers end with the process
that started them."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.core.errors import SourceError, StagewatchError
from stagewatch.core.processes import die_with_parent
from stagewatch.faults.processes import TAG

LIMIT_SECONDS = 60.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that end an injection early."""

PACKAGES = {
    "stress-ng": "stress-ng",
    "tc": "iproute2",
    "ip": "iproute2",
    "iptables": "iptables",
    "ip6tables": "iptables",
    "fallocate": "util-linux",
    "nsenter": "util-linux",
    "scontrol": "slurm-client",
}
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "SLURM_CONF")
"""Variables that must be the same for undoing a fault as for injecting it."""


def require(*tools: str) -> None:
    """Raise `StagewatchError` for the first tool that is not installed."""
    for tool in tools:
        if shutil.which(tool, path=_path(os.environ)) is None:
            raise StagewatchError(
                f"needs {tool}, which is not installed: apt-get install {PACKAGES[tool]}"
            )


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs the commands of one injection.

    Short-lived commands inherit the descriptors in `held`: their locks last until the last of these
    commands has ended, whatever happens to this process.
    """

    id: str
    environ: Mapping[str, str] = field(default_factory=lambda: kept(os.environ))
    prefix: tuple[str, ...] = ()
    """Arguments before each command, which run it in another network namespace."""
    held: tuple[int, ...] = ()

    def run(
        self,
        *argv: str,
        check: bool = True,
        stdin: int | None = None,
        limit: float = LIMIT_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end.  Raises `SourceError` with its output if it fails."""
        try:
            done = subprocess.run(
                [*self.prefix, *argv],
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=limit,
                cwd="/",
                env=self._environ(),
                pass_fds=self.held,
                start_new_session=True,
                preexec_fn=_ChildSetup(),
            )
        except FileNotFoundError as error:
            raise SourceError(f"{argv[0]} is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"{shown(argv)} had not ended after {limit:g} s") from error
        if check and done.returncode:
            output = (done.stderr or done.stdout).strip()[-500:]
            raise SourceError(f"{shown(argv)} failed: {output or f'status {done.returncode}'}")
        return done

    def start(self, *argv: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a helper that runs for the time of the fault, and no longer than this process."""
        with log.open("ab") as output:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=self._environ() | {TAG: self.id},
                start_new_session=True,
                preexec_fn=_ChildSetup(),  # noqa: PLW1509
            )

    def _environ(self) -> dict[str, str]:
        return {**self.environ, "PATH": _path(self.environ), "LC_ALL": "C.UTF-8"}


def kept(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that the tools need, without anything that might be a secret."""
    return {name: environ[name] for name in KEPT if name in environ}


def shown(argv: Sequence[str]) -> str:
    """A command as one would type it."""
    return shlex.join(argv)


def _path(environ: Mapping[str, str]) -> str:
    """The search path, with the directories of system tools that a user's may lack."""
    return f"{environ.get('PATH', '/usr/local/bin:/usr/bin:/bin')}:/usr/sbin:/sbin"


class _ChildSetup:
    """Runs between fork and exec: lets the child end with its parent, and ignore no signal."""

    def __init__(self) -> None:
        self._parent = os.getpid()

    def __call__(self) -> None:
        die_with_parent(self._parent)
        for number in ENDING:  # a process that undoes a fault ignores them
            signal.signal(number, signal.SIG_DFL)
