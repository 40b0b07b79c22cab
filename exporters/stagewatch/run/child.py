"""Runs a command as if the shell had started it itself: signals, job control, exit status.

The command has a process group of its own and, if ours has it, the terminal.  Keys (^C, ^Z) reach
the command as always; signals to this process are passed on.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence

from stagewatch.core.processes import die_with_parent

_SYNCHRONOUS = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS),
}
"""Signals that cannot be caught, or that a bug of this process raises."""


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    look: Callable[[int], None],
    *,
    every: float = 1.0,
) -> int:
    """Run the command to its end; returns its status as `os.waitpid` gives it.

    `look` is called with its pid `every` so many seconds, and once more when it has ended.  Raises
    `OSError` if the command cannot be run.
    """
    awaited = signal.valid_signals() - _SYNCHRONOUS
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        terminal = _terminal()
        child = _start(command, environ, terminal, before)
        while True:
            got = signal.sigtimedwait(awaited, every)
            number = got.si_signo if got is not None else 0
            if number == signal.SIGCONT:
                _give(terminal, child)
                os.killpg(child, signal.SIGCONT)
            elif number not in (0, signal.SIGCHLD):
                os.kill(child, number)  # a zombie takes it too
            ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if ended and os.WIFSTOPPED(status):
                _take(terminal, child)
                os.kill(os.getpid(), signal.SIGSTOP)  # until the shell continues us
            elif ended:
                _take(terminal, child)
                look(child)
                return status
            elif got is None:
                look(child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_alike(status: int) -> int:
    """The exit status for this process; if a signal ended the command, ends this process by it."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return 128 + number
    return os.waitstatus_to_exitcode(status)


def _start(
    command: Sequence[str], environ: Mapping[str, str], terminal: int | None, mask: set[int]
) -> int:
    parent = os.getpid()
    reader, writer = os.pipe()  # closed by a successful exec
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            if terminal is not None and os.tcgetpgrp(terminal) == os.getpgid(parent):
                os.tcsetpgrp(terminal, os.getpid())
            die_with_parent(parent)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as Python found it
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execvpe(command[0], list(command), dict(environ))  # noqa: S606 - no shell on purpose
        except OSError as error:
            os.write(writer, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(writer)
    with open(reader, "rb") as pipe:  # noqa: PTH123 - a descriptor
        problem = pipe.read()
    if problem:
        os.waitpid(child, 0)
        raise OSError(int(problem), os.strerror(int(problem)), command[0])
    return child


def _terminal() -> int | None:
    """The descriptor of our terminal, if there is one."""
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _give(terminal: int | None, child: int) -> None:
    """Give the command the terminal that the shell has given us."""
    with contextlib.suppress(OSError):
        if terminal is not None and os.tcgetpgrp(terminal) == os.getpgrp():
            os.tcsetpgrp(terminal, child)


def _take(terminal: int | None, child: int) -> None:
    """Take the terminal back from a command that has stopped or ended."""
    with contextlib.suppress(OSError):
        if terminal is not None and os.tcgetpgrp(terminal) == child:
            os.tcsetpgrp(terminal, os.getpgrp())
