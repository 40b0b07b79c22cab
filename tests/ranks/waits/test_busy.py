"""Where busy threads run, by samples of real ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stagewatch.ranks.waits.busy import Doing, Samples, doing, libraries
from stagewatch.ranks.waits.look import Waits
from stagewatch.ranks.waits.model import Process, State
from tests.ranks.waits.programs import code
from tests.ranks.waits.test_pipes import Start
from tests.waiting import wait_for

LOOPS = {
    "a loop in Python": ("while True: pass", Doing.PYTHON),
    "a library": (
        "import zlib\nraw = os.urandom(1 << 20)\nwhile True: zlib.compress(raw, 9)",
        Doing.OTHER,
    ),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_the_library_that_a_thread_is_busy_in_is_told(program: Start, loop: str) -> None:
    text, what = LOOPS[loop]
    me = program(code(f"say('me')\n{text}"))["me"]
    samples = Samples([me])
    if samples.problem:
        pytest.skip(samples.problem)
    maps = Path(f"/proc/{me}/maps")
    found = wait_for(lambda: libraries(samples.read()[me], maps.read_bytes()), "enough samples")
    samples.close()
    most, share = found[0]
    assert share > 0.5, found
    assert doing(most) is what, found


def test_a_process_that_runs_is_told_with_the_library(program: Start, waits: Waits) -> None:
    me = program(code("say('me')\nwhile True: pass"))["me"]

    def told() -> Process | None:
        process = waits.look([me]).processes[me]
        return process if process.runs_in or process.lacking else None

    process = wait_for(told, "enough samples")
    assert process.state is State.RUNNING
    if process.lacking:
        pytest.skip(str(process.lacking))
    assert doing(process.runs_in[0][0]) is Doing.PYTHON


def test_a_thread_that_sleeps_shows_nothing(program: Start) -> None:
    me = program(code("say('me'); sleep()"))["me"]
    samples = Samples([me])
    time.sleep(0.1)
    assert all(libraries(seen, b"") == () for seen in samples.read().values())
    samples.close()


def test_a_thread_that_is_gone_is_told_as_such() -> None:
    assert Samples([1 << 22]).problem.startswith("where it runs: ")
    assert Samples([os.getpid()]).problem.count("\n") == 0


@pytest.mark.parametrize(
    ("library", "what"),
    [
        ("libnccl.so.2", Doing.POLLING),
        ("libucs.so.0.0.0", Doing.POLLING),
        ("libtorch_cpu.so", Doing.COMPUTING),
        ("libmkl_core.so.2", Doing.COMPUTING),
        ("libcuda.so.580.95.05", Doing.DEVICE),
        ("libpython3.12.so.1.0", Doing.PYTHON),
        ("python3.11", Doing.PYTHON),
        ("libc.so.6", Doing.OTHER),
    ],
)
def test_what_a_library_is_busy_with(library: str, what: Doing) -> None:
    assert doing(library) is what


def test_a_pointer_is_found_in_its_mapping() -> None:
    maps = (
        b"1000-2000 r-xp 00000000 fe:00 1 /usr/lib/liba.so\n"
        b"2000-3000 rw-p 00000000 fe:00 1 /usr/lib/liba.so\n"
        b"5000-6000 r-xp 00000000 00:00 0 \n"
    )
    seen = [0x1000] * 6 + [0x5FFF] * 3 + [0x6000] * 3
    assert libraries(seen, maps) == (
        ("liba.so", 0.5),
        ("code made while running", 0.25),
        ("unknown", 0.25),
    )
