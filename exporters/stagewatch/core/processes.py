"""Child processes that cannot outlive their parent."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

_PR_SET_PDEATHSIG = 1
_DEVNULL = -3  # subprocess.DEVNULL
_libc = ctypes.CDLL(None)  # loaded here: a child between fork and exec should not


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel for SIGKILL when the thread that forked us ends; see prctl(2).

    With the pid of the `parent`, a process ends at once if its parent ended before this call.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


class Children:
    """Processes that end together; if this process is killed first, the kernel ends them."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        command: Sequence[str],
        *,
        log: Path | None = None,
        environ: Mapping[str, str] | None = None,
        stdin: int | IO[Any] | None = _DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a process in its own session; its output goes to `log`."""
        import subprocess  # half a MiB of every child that imports this file for `die_with_parent`

        with contextlib.ExitStack() as stack:
            output: Any = stack.enter_context(log.open("ab")) if log else _DEVNULL
            process = subprocess.Popen(
                list(command),
                stdin=stdin,
                stdout=output,
                stderr=output,
                env=dict(os.environ if environ is None else environ),
                start_new_session=True,
                # Only prctl, loaded before the fork.
                preexec_fn=functools.partial(die_with_parent, os.getpid()),  # noqa: PLW1509
            )
        self._processes.append(process)
        return process

    def stop(self, patience: float = 5.0) -> None:
        """Send SIGTERM to all, and SIGKILL to those that remain after `patience` seconds."""
        from subprocess import TimeoutExpired

        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in self._processes:
            try:
                process.wait(timeout=patience)
            except TimeoutExpired:
                patience = 0.1
                process.kill()
                process.wait()
        self._processes.clear()

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
