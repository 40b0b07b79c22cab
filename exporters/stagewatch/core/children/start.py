"""Starts child processes: directly, or through the keeper of privileges."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import stagewatch

PACKAGES = Path(stagewatch.__path__[0]).resolve().parent
"""The directory of this package, for the child to import."""

_RUN = """
import sys, types
path, name = sys.argv[1:3]
del sys.argv[1:3]
sys.path += path.split(":")
package = sys.modules["stagewatch"] = types.ModuleType("stagewatch")
package.__path__ = [f"{each}/stagewatch" for each in path.split(":")]
__import__(name, fromlist=["main"]).main()
"""
"""It skips the client, which `import stagewatch` loads: 3.4 MiB in every child."""


class Process(Protocol):
    """A child with pipes, like `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """Its standard input."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Its standard output."""

    @property
    def stderr(self) -> IO[bytes] | None:
        """Its standard error, if it is not the agent's."""

    def terminate(self) -> None:
        """Ask it to end.  Safe in a signal handler."""

    def kill(self) -> None:
        """Kill it."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status.  Raises `subprocess.TimeoutExpired`."""


def popen(command: Sequence[str], *, errors: bool = False) -> subprocess.Popen[bytes]:
    """Start a program that can import this package; with `errors`, its standard error is a pipe."""
    path = os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if errors else None,
        bufsize=0,
        cwd="/",  # `python -m` imports from the working directory first
        env={**os.environ, "PYTHONPATH": path},
    )


def bare_python(module: str, *arguments: str, packages: Sequence[Path] = (PACKAGES,)) -> list[str]:
    """The command that runs `main` of a module, with only the standard library and `packages`."""
    path = ":".join(str(package.resolve()) for package in packages)
    return [sys.executable, "-I", "-S", "-c", _RUN, path, module, *arguments]


@dataclass(frozen=True, slots=True)
class Child:
    """A child that may need the agent's privileges: it reads processes of other users."""

    module: str
    """The module whose `main` it runs; standard library only."""
    arguments: tuple[str, ...] = ()
    """Fixed before the agent listens; nobody can change them afterwards."""
    may: tuple[str, ...] = ()
    """Permissions beyond reading; see `core.privileges.seccomp`."""


Start = Callable[[Child], Process]
"""Starts a child with pipes to its standard input and output."""


def plainly(child: Child) -> Process:
    """Start it with this process's own privileges."""
    return popen(bare_python(child.module, *child.arguments))
