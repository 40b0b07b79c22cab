"""Costs of a heartbeat, a stage, a collective, an event and the import: medians of CPU time.

CPU time is disturbed less by other work on the machine, and no call waits for anything.  All calls
are measured in turn, over and over, so that a machine that slows down slows all of them.  A loop
tells how fast it was; floors tell what Python alone takes for the same effect: the calls, the time
and an event's words stored at each of them, without anything that is added up or checked.
"""

from __future__ import annotations

import inspect
import itertools
import mmap
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from struct import Struct
from types import ModuleType
from typing import Any

import stagewatch
from stagewatch.client import _api, _lane
from stagewatch.record import EVENT_SIZE, EVENTS_AT, EVENTS_END, FILE_SIZE, SUBSTAGE_SIZE
from tests.bench.table import row

BATCHES = 25
IMPORTS = 30
CALLS = 4_000

_read_clock = time.clock_gettime_ns
_BOOT = time.CLOCK_BOOTTIME


class _Bare:
    """A context manager that does nothing but store the time, when entered and when left."""

    def __enter__(self) -> _Bare:
        _store()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        _store()


_pack = Struct("@qqqq").pack_into
_memory = memoryview(mmap.mmap(-1, FILE_SIZE))


def _store() -> None:
    now = _read_clock(_BOOT)
    _pack(_memory, 0, now, 1, 2, now)


def _bare() -> None:
    with _Bare():
        pass


def _loop() -> None:
    total = 0
    for number in range(60):
        total += number & 7


def _heartbeat() -> None:
    stagewatch.heartbeat(3)


def _stage() -> None:
    with stagewatch.stage("train", step=3):
        pass


def _collective() -> None:
    with stagewatch.collective("tp:1", op="all_reduce", size=4, elements=1024):
        pass


def _call() -> None:
    with stagewatch.call("search"):
        pass


def _batch() -> None:
    recorder = _api._recorder
    if recorder is not None:
        recorder.got_batch(recorder.wait_for_batch())


def main() -> None:
    """Print the median cost of a call."""
    steps = itertools.count()
    calls: dict[str, Callable[[], Any]] = {
        "loop": _loop,
        "store": _store,
        "bare": _bare,
        "heartbeat": _heartbeat,
        "new step": lambda: stagewatch.heartbeat(next(steps)),
        "stage": _stage,
        "scalar": lambda: stagewatch.scalar("reward", 0.3),
        "bare collective": lambda: stagewatch.collective("world"),
        "collective": _collective,
        "call": _call,
        "batch": _batch,
        "with the ring": _two_events(_lane),
        "without": _two_events(_without_ring()),
    }
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        stagewatch.init(job_id="bench", rank=0, directory=directory)
        cost = _medians(calls)
        apart = _far_apart({"heartbeat": _heartbeat, "stage": _stage})
        stagewatch.close()
    event = (cost["with the ring"] - cost["without"]) / 2
    row("a loop of 60 rounds, for the speed of the machine", cost["loop"], "us")
    row("an event in the ring, added to a call", event, "us", 0.2)
    row("heartbeat(step)", cost["heartbeat"], "us", 1.0)
    row("heartbeat(step), the step new", cost["new step"], "us", 1.0)
    row("heartbeat(step), each 20 ms after the last", apart["heartbeat"], "us", 1.0)
    row("  a call that stores the time: the floor", cost["store"], "us")
    row("  heartbeat(step) in floors", cost["heartbeat"] / cost["store"], "times")
    row("stage enter + exit", cost["stage"], "us", 3.0)
    row("stage enter + exit, of 20 ms", apart["stage"], "us", 3.0)
    row("collective enter + leave", cost["collective"], "us", 2.0)
    row("  a block that stores the time twice: the floor", cost["bare"], "us")
    row("  stage in floors", cost["stage"] / cost["bare"], "times")
    row("  collective in floors", cost["collective"] / cost["bare"], "times")
    row("call of a tool, begin + end", cost["call"], "us")
    row("wait for a batch of data, counted", cost["batch"], "us")
    row("scalar", cost["scalar"], "us")
    row("collective, bare", cost["bare collective"], "us")
    row("size of a record", FILE_SIZE / 1024, "KiB")
    row("import stagewatch", _import_seconds() * 1e3, "ms")


def _import_seconds() -> float:
    """CPU of a process that imports the client, less that of one that does not."""
    _process_seconds("import stagewatch")  # its modules may have to be compiled
    return statistics.median(
        _process_seconds("import stagewatch") - _process_seconds("pass") for _ in range(IMPORTS)
    )


def _process_seconds(program: str) -> float:
    def cpu() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = cpu()
    subprocess.run([sys.executable, "-c", program], check=True)
    return cpu() - before


def _far_apart(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """What calls cost between which 20 ms pass each time, which a clock of Python's tells.

    Between calls without a pause no gap is longer than what the first bucket holds.
    """
    times = itertools.count(_read_clock(_BOOT), 20_000_000)
    _lane._read_clock = lambda clock: next(times)
    try:
        return _medians(calls)
    finally:
        _lane._read_clock = _read_clock


def _without_ring() -> ModuleType:
    """A copy of the module that stores no event."""
    kept, left_out = [], 0
    for line in inspect.getsource(_lane).splitlines():
        if line.lstrip().startswith("_pack_event(self._raw"):
            left_out += 1
            kept.append(line[: len(line) - len(line.lstrip())] + "pass")
        else:
            kept.append(line)
    if left_out != 4:
        raise RuntimeError(f"{left_out} events are stored where a step, a stage's two ends and a "
                           "failure store one each")  # fmt: skip
    module = ModuleType("without_ring")
    exec(compile("\n".join(kept), "without_ring", "exec"), vars(module))
    return module


def _two_events(module: Any) -> Callable[[], None]:
    """A stage that is entered and left in a lane of the module's own."""
    memory = memoryview(mmap.mmap(-1, FILE_SIZE))
    places: Iterator[int] = itertools.cycle(range(EVENTS_AT, EVENTS_END, EVENT_SIZE))
    lane = module.Lane(memory.cast("q"), memory, 0, places)
    stage = module.Opened()
    stage.label, stage.step = (5, bytes(SUBSTAGE_SIZE), 5), 3

    def enter_and_leave() -> None:
        lane.enter(stage)
        lane.leave(stage)

    return enter_and_leave


def _medians(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The cost of each, in microseconds."""
    timers = {name: timeit.Timer(call, timer=time.thread_time) for name, call in calls.items()}
    costs: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(BATCHES):
        for name, timer in timers.items():
            costs[name].append(timer.timeit(CALLS) / CALLS * 1e6)
    return {name: statistics.median(found) for name, found in costs.items()}
