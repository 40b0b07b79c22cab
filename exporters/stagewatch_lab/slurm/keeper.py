"""A process that starts others and outlives none of them.

It reads one JSON request a line from its standard input and answers on its standard output.  When
the input ends (its owner closed it, exited, or was killed) it kills everything that it started,
grandchildren that became daemons included (it is their subreaper), ends its output, and removes
the directories that it made, however long that takes.  Each child is also killed by the kernel if
the keeper itself dies.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Serve requests until the input ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole foreground group
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    owner = os.getppid()
    statuses: dict[int, int] = {}
    directories: list[str] = []
    buffer = b""
    try:
        while os.getppid() == owner:
            _reap(statuses)
            if not select.select([0], [], [], 0.2)[0]:
                continue
            chunk = os.read(0, 65536)
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                _answer(json.loads(line), statuses, directories, libc)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the directories are removed first
        _kill_all()
        _let_go()
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)


def _answer(
    request: dict[str, Any], statuses: dict[int, int], directories: list[str], libc: ctypes.CDLL
) -> None:
    if "argv" in request:
        reply: dict[str, Any] = {"pid": _spawn(request, libc)}
    elif "prefix" in request:
        directories.append(tempfile.mkdtemp(prefix=request["prefix"]))
        reply = {"directory": directories[-1]}
    else:
        _reap(statuses)
        reply = {"status": statuses.get(request["pid"])}
    os.write(1, json.dumps(reply).encode() + b"\n")


def _spawn(request: dict[str, Any], libc: ctypes.CDLL) -> int:
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(1)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(request["cwd"])
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606
    except OSError as error:
        os.write(2, f"{request['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _reap(statuses: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        statuses[pid] = os.waitstatus_to_exitcode(status)


def _let_go() -> None:
    """Close the pipes whose end the owner and readers of its output wait for."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for inherited in (0, 1, 2):
        os.dup2(nothing, inherited)


def _kill_all() -> None:
    """Kill children until there are none; orphans of killed processes become children too."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        pids = [int(pid) for pid in children.read_text().split()]
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _reap({})
        time.sleep(0.02)


if __name__ == "__main__":
    main()
