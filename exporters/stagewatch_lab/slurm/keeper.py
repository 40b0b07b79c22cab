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

from stagewatch.core.processes import Children

PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Serve requests until the input ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches the whole foreground group
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    owner = os.getppid()
    children = Children()
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
                reply = _answer(json.loads(line), children, statuses, directories)
                os.write(1, json.dumps(reply).encode() + b"\n")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the directories are removed first
        _kill_all()
        _let_go()
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)


def _answer(
    request: dict[str, Any], children: Children, statuses: dict[int, int], directories: list[str]
) -> dict[str, Any]:
    if "argv" in request:
        command = ["env", "-C", request["cwd"], *request["argv"]]
        log = Path(request["log"])
        return {"pid": children.start(command, log=log, environ=request["env"]).pid}
    if "prefix" in request:
        directories.append(tempfile.mkdtemp(prefix=request["prefix"]))
        return {"directory": directories[-1]}
    _reap(statuses)
    return {"status": statuses.get(request["pid"])}


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
