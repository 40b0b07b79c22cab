"""Processes that take resources from a worker: `python -m stagewatch_lab.rl.hogs KIND ...`.

`cpu CORE COUNT PID`: COUNT processes that compute on one core until the process PID is gone.
`memory PID RATE LOG`: as soon as the controller writes into LOG that the next rollout begins,
takes RATE bytes a second until the process PID is gone.
`device FILE BYTES RATE`: takes and keeps up to BYTES of a stand-in GPU.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from stagewatch.core.processes import die_with_parent
from stagewatch_lab.rl.controller_log import starts
from stagewatch_lab.rl.device import Device, OutOfDeviceMemory
from stagewatch_lab.rl.plan import GIB, MIB


def cpu(core: int, count: int, victim: int) -> None:
    """Compute, in this process and its children."""
    os.sched_setaffinity(0, {core})
    parent = os.getpid()
    for _ in range(count - 1):
        if os.fork() == 0:
            die_with_parent(parent)
            os.setsid()  # the scheduler shares a core between sessions first: sched(7), autogroup
            break
    while _lives(victim):
        pass


def memory(victim: int, rate: float, log: Path) -> None:
    """Leak until the OOM killer kills the largest process, the victim."""
    before = _rollouts(log)
    while _lives(victim) and _rollouts(log) == before:
        time.sleep(0.02)
    held = []
    step = MIB
    while _lives(victim):
        held.append(bytearray(os.urandom(1) * step))
        time.sleep(step / rate)


def device(file: Path, size: int, rate: float) -> None:
    """Take one GiB after another, each as soon as it is free."""
    gpu = Device(file)
    held = 0
    while held < size:
        with contextlib.suppress(OutOfDeviceMemory):
            gpu.take(GIB)
            held += GIB
        time.sleep(GIB / rate)
    signal.pause()


def _rollouts(log: Path) -> int:
    return starts(log.read_text(errors="replace"), "rollout")


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def main(kind: str, arguments: list[str]) -> None:
    """Run one of them."""
    if kind == "cpu":
        cpu(*map(int, arguments))
    elif kind == "memory":
        memory(int(arguments[0]), float(arguments[1]), Path(arguments[2]))
    else:
        device(Path(arguments[0]), int(arguments[1]), float(arguments[2]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
