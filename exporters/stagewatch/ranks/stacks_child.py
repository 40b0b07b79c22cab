"""The child that runs py-spy on one process after another; `stacks` is its other end.

py-spy reads the memory of a process that may forge it, and files that may be on a dead mount.  So
it runs with little CPU time and memory and the lowest priority, and has a few seconds for a
process; if it does not end when killed, it is left to the kernel.

It speaks lines of JSON, uses the standard library only, and ends when its input does."""

from __future__ import annotations

import json
import os
import resource
import selectors
import subprocess
import sys
import time
from typing import Any

from stagewatch.core.children.worker import identity
from stagewatch.core.processes import die_with_parent
from stagewatch.core.state_file import BROKEN, parse

PROCESS_SECONDS = 5.0
"""Time for one process."""
ANSWER_SECONDS = 20.0
"""Time for all processes; those not reached by then are reported as such."""
CPU_SECONDS = 5
"""CPU time of one run of py-spy; it usually takes 0.03 s."""
OPTIONS = ("dump", "--json", "--nonblocking", "--pid")
MEMORY_BYTES = 384 << 20
"""Address space of py-spy, and of this process."""
MAX_OUTPUT = 8 << 20
"""Most bytes read of py-spy's output: some ten thousand threads."""
MAX_THREADS = 16
"""Threads reported for a process, the training thread first."""
MAX_FRAMES = 120
"""Frames reported for that thread: half of them the innermost, half the outermost."""
MAX_OTHER_FRAMES = 20
"""Innermost frames reported for every other thread."""
MAX_NAME = 100
MAX_COMPLAINT = 200
MAX_PATH = 300

UNREADABLE = (*BROKEN, MemoryError)
"""Exceptions for JSON of another shape: the process decides on the names and numbers in it."""

Thread = tuple[str, list[tuple[str, str, int]]]
"""Name, and function, file and line of each frame, the innermost first."""


def answer(program: str, question: dict[str, Any]) -> list[dict[str, Any]]:
    """The threads of each requested process, or why there are none.

    Raises `ValueError` if the question asks for anything else.
    """
    end = time.monotonic() + ANSWER_SECONDS
    return [_process(program, target, end) for target in map(_checked, question["targets"])]


def _checked(target: dict[str, Any]) -> dict[str, int]:
    if target.keys() != {"pid", "start", "thread"} or {type(one) for one in target.values()} != {
        int
    }:
        raise ValueError("no such process")
    return target


def _process(program: str, target: dict[str, int], end: float) -> dict[str, Any]:
    pid, start = target["pid"], target["start"]
    answer: dict[str, Any] = {"pid": pid, "threads": [], "problem": "", "hung": False}
    now = identity(pid)
    if now is None or (start and now[1] != start):
        return answer | {"problem": "it has ended"}
    seconds = min(PROCESS_SECONDS, end - time.monotonic())
    if seconds <= 0:
        return answer | {"problem": "no time was left for it"}
    try:
        status, output, error = _run([program, *OPTIONS, str(pid)], seconds)
    except OSError as failure:
        return answer | {"problem": f"{program}: {failure.strerror}"}
    except TimeoutError as failure:
        return answer | {"problem": f"py-spy {failure}", "hung": True}
    if status is None or status:
        return answer | {"problem": _complaint(status, error.decode("utf-8", "replace"))}
    try:
        return answer | {"threads": threads(output, target["thread"], pid)}
    except UNREADABLE:
        return answer | {"problem": "py-spy gave no JSON that can be read; 0.4 or later is needed"}


def _run(command: list[str], seconds: float) -> tuple[int | None, bytes, bytes]:
    """Exit status, output and standard error; the status is `None` if the run had to be killed.

    Raises `TimeoutError` if it does not end even then.
    """
    parent, end = os.getpid(), time.monotonic() + seconds
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - for reading: it may open no file else
        process = subprocess.Popen(
            command,
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: _limit(parent),  # noqa: PLW1509 - this process has one thread
        )
    assert process.stdout is not None and process.stderr is not None  # noqa: S101
    output: dict[int, bytearray] = {
        pipe.fileno(): bytearray() for pipe in (process.stdout, process.stderr)
    }
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        for pipe in output:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(max(0.0, end - time.monotonic())):
                data = os.read(key.fd, 1 << 16)
                output[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
            if sum(map(len, output.values())) > MAX_OUTPUT:
                break
        finished = not selector.get_map()
        out, error = (bytes(text) for text in output.values())
    if not finished:
        process.kill()
    try:
        status = process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        raise TimeoutError("does not end: it sits in a call that cannot be interrupted") from None
    return (status if finished else None), out, error


def _limit(parent: int) -> None:
    die_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def _complaint(status: int | None, error: str) -> str:
    complaint = " ".join(error.split())
    if len(complaint) > MAX_COMPLAINT:  # the reason may stand first or last
        complaint = f"{complaint[: MAX_COMPLAINT // 2]} ... {complaint[-MAX_COMPLAINT // 2 :]}"
    if status is None:
        return f"py-spy did not answer within {PROCESS_SECONDS:.0f} s, or wrote without end"
    if "ermission" in complaint or "not permitted" in complaint:
        return "not permitted: run as root, or as the user of the job with ptrace allowed"
    return f"py-spy: {complaint or f'exit status {status}'}"


def threads(output: bytes, trains: int, pid: int) -> list[Thread]:
    """The threads in py-spy's output, the training thread first; if that is unknown, the main one.

    Raises one of `UNREADABLE`.
    """

    def rank(thread: dict[str, Any]) -> int:
        number = thread.get("os_thread_id")
        if trains and number == trains:
            return 0
        return 1 if number == pid or thread.get("thread_name") == "MainThread" else 2

    # py-spy tells the youngest thread first, and its own numbers only from Python 3.11 on.
    told = parse(output)
    told.reverse()
    first_ones = sorted(told, key=rank)[:MAX_THREADS]
    return [_thread(thread, first=not place) for place, thread in enumerate(first_ones)]


def _thread(thread: dict[str, Any], *, first: bool) -> Thread:
    frames = thread["frames"]
    if first and len(frames) > MAX_FRAMES:
        frames = frames[: MAX_FRAMES // 2] + frames[-MAX_FRAMES // 2 :]
    name = thread.get("thread_name") or thread.get("os_thread_id") or thread["thread_id"]
    return str(name)[:MAX_NAME], [
        (str(frame["name"])[:MAX_NAME], str(frame["filename"])[-MAX_PATH:], int(frame["line"]))
        for frame in (frames if first else frames[:MAX_OTHER_FRAMES])
    ]


def main() -> None:
    """Answer questions until the input ends."""
    die_with_parent(os.getppid())
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(sys.argv[1], json.loads(line))) + "\n")
        sys.stdout.flush()
