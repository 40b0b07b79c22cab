"""Wait classes of real processes in every state the kernel has, and of made-up windows."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.model import Rank, rank_of
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.wait_class import WINDOW_SAMPLES, Sample, Sampler, WaitClass, classify
from tests.fakes.faultfs import FaultFs
from tests.ranks.record_scene import as_root
from tests.running import Python
from tests.waiting import wait_for

PROC = Procfs()

WAYS_TO_WAIT = {
    "busy loop": ("while True: pass", WaitClass.SPIN),
    "busy loop that yields": ("while True: os.sched_yield()", WaitClass.POLL),
    "polling every 50 us": ("while True: time.sleep(5e-5)", WaitClass.POLL),
    "compiler": (
        """
        line = "def f%d(a, b): return [a * %d + b, {a: b}]"
        source = chr(10).join(line % (i, i) for i in range(3000))
        while True: compile(source, "x", "exec")
        """,
        WaitClass.COMPUTE,
    ),
    "arithmetic in place": (
        """
        array = memoryview(bytearray(1 << 20))
        while True: array[: 1 << 19] = array[1 << 19 :]
        """,
        WaitClass.SPIN,  # which describes, and accuses nobody
    ),
    "pipe": ("os.read(os.pipe()[0], 1)", WaitClass.PARKED),
    "child of vfork": (
        """
        libc = ctypes.CDLL(None)
        if libc.vfork() == 0:  # which stops this process, in state D, until the child has ended
            libc.prctl(1, signal.SIGKILL)
            libc.pause()
        """,
        WaitClass.IO,
    ),
}


def look(pid: int, marks: int | None = None) -> Sample | None:
    sample = Sampler(PROC).take(Rank("7", "train", 0, pid), time.monotonic())
    return None if sample is None else replace(sample, marks=marks)


def watch(pid: int, *, progressing: bool = False) -> WaitClass:
    samples = []
    for number in range(WINDOW_SAMPLES):
        sample = look(pid, number if progressing else 0)
        if sample is not None:
            samples.append(sample)
        time.sleep(0.03)
    return classify(samples)


def becomes(pid: int, expected: WaitClass, *, progressing: bool = False) -> None:
    wait_for(lambda: watch(pid, progressing=progressing) is expected, f"class {expected}")


@pytest.mark.parametrize("way", WAYS_TO_WAIT)
def test_a_real_process_that_waits_by(way: str, python: Python) -> None:
    code, expected = WAYS_TO_WAIT[way]
    lines = code.strip().splitlines()
    imports = "import ctypes, os, select, signal, subprocess, sys, threading, time\n"
    imports += "from stagewatch.core.processes import die_with_parent\nprint('ready')\n"
    indent = min((len(x) - len(x.lstrip()) for x in lines[1:]), default=0)
    script = python.ready(imports + "\n".join([lines[0], *(line[indent:] for line in lines[1:])]))
    becomes(script.pid, expected)


def test_a_stopped_process_is_stopped_and_may_go_on(python: Python) -> None:
    script = python.ready("print('ready')\nwhile True: pass")
    script.process.send_signal(signal.SIGSTOP)
    becomes(script.pid, WaitClass.STOPPED)
    script.process.send_signal(signal.SIGCONT)
    becomes(script.pid, WaitClass.SPIN)


def test_a_read_of_a_silent_mount_is_io(python: Python, faultfs: Callable[[str], FaultFs]) -> None:
    mount = faultfs("silent")
    (mount.mount / "file").write_bytes(bytes(4096))
    mount.fault("hang", "read")
    script = python.ready(
        "import sys; print('ready'); open(sys.argv[1], 'rb').read()", mount.mount / "file"
    )
    becomes(script.pid, WaitClass.IO)


THREAD_THAT_TRAINS = """
import threading, time
import stagewatch
stagewatch.init(job_id=540, rank=0)
def train():
    stagewatch.heartbeat(1)
    print("ready", flush=True)
    while True:
        pass
for _ in range(3):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
threading.Thread(target=train, daemon=True).start()
time.sleep(600)
"""


@pytest.mark.parametrize(
    "prefix",
    [(), pytest.param(("unshare", "--pid", "--fork", "--kill-child"), marks=as_root)],
    ids=["here", "in a PID namespace"],
)
def test_the_thread_that_trains_is_looked_at(
    prefix: tuple[str, ...], python: Python, record_dir: Path
) -> None:
    """Its id is told by the record, in another namespace translated by NSpid, see proc(5)."""
    python.ready(THREAD_THAT_TRAINS, prefix=prefix, STAGEWATCH_DIR=str(record_dir))
    sampler = Sampler(PROC)
    with closing(RecordDirectory(record_dir, PROC)) as records:

        def spins() -> bool:
            samples = []
            for _ in range(WINDOW_SAMPLES):
                for record in records.read():
                    rank = rank_of(record)
                    sample = sampler.take(rank, time.monotonic())
                    if sample is not None:
                        assert sample.task != rank.pid
                        samples.append(sample)
                time.sleep(0.03)
            return classify(samples) is WaitClass.SPIN

        wait_for(spins, "the class of the training thread")


def window(
    states: str,
    *,
    cpu: float = 0.0,
    voluntary: int = 0,
    marks: int | None = 0,
    page_faults: int = 0,
    channel: str = "",
    system: float = 0.0,
) -> list[Sample]:
    """One sample a second; what is a number is added in each."""
    return [
        Sample(
            time=100.0 + second,
            state=state,
            channel=channel if state in "SD" else "",
            run_seconds=cpu * second,
            voluntary=voluntary * second,
            involuntary=50 * second,
            marks=None if marks is None else marks * second,
            page_faults=page_faults * second,
            system_seconds=system * second,
        )
        for second, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (window("RRRRRRRRRR", cpu=1.0), WaitClass.SPIN),
        (window("RRRRRRRRRR", cpu=0.03), WaitClass.SPIN),  # 63 spinners on two cores
        (window("RRRRRRRRRR", cpu=1.0, marks=1), WaitClass.COMPUTE),
        (window("RRRRRRRRRR", cpu=1.0, voluntary=30), WaitClass.SPIN),  # beside a thread of 20 Hz
        (window("RRRRRRRRRR", cpu=0.5, voluntary=2000), WaitClass.POLL),
        (window("RRRRRRRRRR", cpu=0.5, voluntary=2000, page_faults=3000), WaitClass.COMPUTE),
        (window("RRRRRRRRRR", cpu=1.0, system=0.6), WaitClass.POLL),  # sched_yield, poll(2)
        (window("SSSSRSSSSS", cpu=0.2, voluntary=7000), WaitClass.POLL),
        (window("SRSRSRSRSR", cpu=0.5, voluntary=100), WaitClass.SPIN),  # two share an interpreter
        (window("RRRRRRRRRR", cpu=1.0, page_faults=3000), WaitClass.COMPUTE),  # a compiler
        (window("RRSRRSRRSR", cpu=0.7, voluntary=5), WaitClass.SPIN),
        (window("SSSSSSSSSS", channel="futex_do_wait"), WaitClass.PARKED),
        (window("SSSSSSSSRS", cpu=0.02, voluntary=900), WaitClass.POLL),  # a 1 ms poll
        (window("SSSSSSSSSS", channel="nfs4_run_open_task"), WaitClass.IO),
        (window("DDDDDDDDDD", channel="io_schedule"), WaitClass.IO),
        (window("RDRDRDDRDR", cpu=0.4), WaitClass.IO),  # half the time on the disk
        (window("RRRRRRRRtt"), WaitClass.TRACED),  # at once: its peers must not accuse it
        (window("SSSSSSSSTT"), WaitClass.STOPPED),
        (window("SSSSSSSSSt"), WaitClass.PARKED),  # a tracer that looked at one system call
        (window("RRRRRRRRRZ"), WaitClass.GONE),
        (window("RRRR", cpu=1.0), WaitClass.UNKNOWN),
        (window("RRRRRSSSSS", cpu=0.2), WaitClass.UNKNOWN),
        (window("SSSSS", cpu=0.2), WaitClass.UNKNOWN),  # it wakes up to work: asleep, not at rest
    ],
)
def test_windows(samples: list[Sample], expected: WaitClass) -> None:
    assert classify(samples) is expected
