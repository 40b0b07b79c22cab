"""Trainers whose all-reduce is one of NCCL, as far as its profiler plugin can see.

Each has a thread for the program and one for the proxy; the real plugin writes what they do.

Whatever happens, happens below the programs: all of them are inside the same collective.
"""

from __future__ import annotations

import ctypes
import fcntl
import sys
import time
from pathlib import Path

import stagewatch
from stagewatch_nccl import build
from tests.hangbench.programs.part import Part, directory
from tests.nccl.ring import Fault, shared_harness

ELEMENTS = 1 << 20
LOCAL = "--local"


def word(name: str) -> str:
    """Take `NAME VALUE` out of the command line."""
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    return value


def flag(name: str) -> bool:
    """Take `NAME` out of it, if it is there."""
    given = name in sys.argv
    sys.argv = [one for one in sys.argv if one != name]
    return given


def built(here: Path) -> tuple[Path, Path]:
    """The plugin and the harness of this job, which the first rank to come builds."""
    plugin, harness = here / "libnccl-profiler-stagewatch.so", here / "libfake-nccl.so"
    with (here / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not harness.exists():
            build(plugin)
            shared_harness(harness)
    return plugin, harness


def main() -> None:
    """Train."""
    fault, local = Fault[word("--what").upper()], flag(LOCAL)
    part = Part()
    plugin, harness = built(directory())
    nccl = ctypes.CDLL(str(harness))
    nccl.fake_init.restype = ctypes.c_void_p
    nccl.fake_all_reduce.argtypes = (
        *(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_double),
    )
    wires = f"{'local:' if local else ''}{directory() / 'network'}"
    rank = nccl.fake_init(str(plugin).encode(), 5, wires.encode(), part.rank, part.size)
    seconds = 86400.0 if part.given.fault else part.given.pause
    while part.step():
        happens = fault if part.struck() else Fault.NONE
        with stagewatch.stage("train"):
            time.sleep(0.4)
            with stagewatch.collective(op="all_reduce", size=part.size, elements=ELEMENTS):
                part.inside(True)
                nccl.fake_all_reduce(rank, ELEMENTS, int(happens), seconds)
                part.inside(False)


if __name__ == "__main__":
    main()
