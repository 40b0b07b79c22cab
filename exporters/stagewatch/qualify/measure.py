"""Starts the workers and gives up in time: a worker that hangs is killed, or left behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stagewatch.core.processes import die_with_parent

WORKER = Path(__file__).with_name("worker.py")
STORAGE = "from stagewatch.qualify.storage import main; main()"
MAX_OUTPUT = 1 << 20

Found = dict[str, Any]
"""A worker's results, see its functions; or an `error`, or `late`."""


class Deadline:
    """The time at which everything must have ended."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The remaining seconds; at least 0."""
        return max(0.0, self._end - time.monotonic())


def ask(
    python: str, part: str, arguments: Sequence[Mapping[str, Any]], deadline: Deadline
) -> list[Found]:
    """The results of workers that run at the same time, one for each of the arguments."""
    begin = [python, str(WORKER)] if part != "storage" else [sys.executable, "-c", STORAGE]
    with contextlib.ExitStack() as stack:
        started = []
        for each in arguments:
            output = stack.enter_context(tempfile.TemporaryFile())
            started.append((_start([*begin, part, json.dumps(each)], output), output))
        return [_answer(process, output, deadline) for process, output in started]


def meet(python: str, gpus: int, seconds: float, deadline: Deadline) -> list[Found]:
    """An all-reduce of all GPUs, or of two processes if there is none."""
    ranks = gpus or 2
    with tempfile.TemporaryDirectory(prefix="stagewatch-") as directory:
        arguments = [
            {"gpu": rank if gpus else None, "rank": rank, "ranks": ranks, "seconds": seconds,
             "meeting": f"{directory}/meeting"}
            for rank in range(ranks)
        ]  # fmt: skip
        return ask(python, "all_reduce", arguments, deadline)


def _start(command: list[str], output: Any) -> subprocess.Popen[bytes] | str:
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL,
            start_new_session=True, cwd="/",
            preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - only prctl
        )  # fmt: skip
    except OSError as error:
        return f"{command[0]} cannot be run: {error.strerror}"


def _answer(process: subprocess.Popen[bytes] | str, output: Any, deadline: Deadline) -> Found:
    if isinstance(process, str):
        return {"error": process}
    try:
        status = process.wait(deadline.left)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)  # a process stuck in the kernel is left behind
        return {"late": True}
    output.seek(0)
    lines = output.read(MAX_OUTPUT).decode(errors="replace").splitlines()
    try:
        found = json.loads(lines[-1])
        value = found.get("value", 1.0)
        if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
            return dict(found)
    except (IndexError, ValueError, AttributeError):
        pass
    how = f"killed by signal {-status}" if status < 0 else f"status {status}"
    return {"error": f"it printed no figure, {how}"}
