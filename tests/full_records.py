"""A neighbour whose stage records hold all that a record can, for tests and benchmarks.

`python -m tests.full_records DIRECTORY COUNT [SECONDS]` keeps so many, each of a job of its own;
each is renewed after so many seconds, as another job's.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import stagewatch
from stagewatch.core.processes import Children
from stagewatch.record import FILE_SIZE, H_RANK, LANES, S_JOB_ID, S_ROLE, pad
from stagewatch.stages import STAGES
from tests.as_installed import as_user
from tests.records import patched
from tests.running import clean_environ
from tests.waiting import wait_for

NEIGHBOUR = 60_001
"""A user that no machine has."""
NAMES = 40
"""Of each kind, as many as fit or more."""


def full_record(directory: Path) -> bytes:
    """A record of this process with every table and every lane full."""
    stagewatch.init("r" * 32, job_id="j" * 64, rank=0, world_size=8, directory=directory)
    threads = [threading.Thread(target=_fill, args=(lane,)) for lane in range(LANES)]
    for thread in threads:
        thread.start()
        thread.join()
    [file] = directory.glob("*.rank")
    raw = file.read_bytes()
    stagewatch.close()
    return raw


def _fill(lane: int) -> None:
    for number in range(NAMES):
        name = f"{lane}-{number}-".ljust(40, '"')
        stagewatch.scalar(name, number)
        with stagewatch.collective(name[:32], op="all_reduce", size=8), stagewatch.call(name[:32]):
            pass
    stages = [stage for stage in STAGES if stage != "idle"]
    for number, stage in enumerate(stages):
        stagewatch.throughput(tokens=1, flops=1, samples=1, stage=stage)
        try:
            with stagewatch.stage(stage, step=number):
                stagewatch.heartbeat(number)
                stagewatch.heartbeat(number)
                raise type(f"{lane}-{number}-Error".ljust(48, "x"), (Exception,), {})
        except Exception:
            pass


def neighbour(children: Children, directory: Path, log: Path, *records: int) -> None:
    """Start another user's process that keeps them: how many, and after how many seconds they are
    renewed."""
    command = [sys.executable, "-u", "-m", "tests.full_records", str(directory), *map(str, records)]
    scratch = log.parent / f"neighbour-{NEIGHBOUR}"
    log = log.with_suffix(".neighbour")
    children.start(
        as_user(scratch, NEIGHBOUR, *command), environ=clean_environ({"HOME": "/"}), log=log
    )
    wait_for(lambda: "full" in log.read_text(), f"records of a neighbour: {log.read_text()}")


def main() -> None:
    """Write them, hold their locks, and renew them."""
    directory, count, *renewed = sys.argv[1:]
    with tempfile.TemporaryDirectory() as draft:
        raw = full_record(Path(draft))
    held: dict[int, Any] = {}
    for number in itertools.count():
        place = number % int(count)
        if place in held:
            held[place].close()
            Path(held[place].name).unlink()
        file = Path(directory, f"{os.getpid()}-{number:08x}.rank")
        held[place] = file.open("w+b")
        fcntl.lockf(held[place], fcntl.LOCK_EX)
        record = bytearray(patched(raw, {H_RANK: number % 1000}))
        for (at, size), text in ((S_JOB_ID, f"job-{os.getpid()}-{number}-"), (S_ROLE, f"{number}")):
            record[at : at + size] = pad(text.ljust(size, '"'), size)
        held[place].write(record.ljust(FILE_SIZE, b"\0"))
        held[place].flush()
        if number + 1 >= int(count):
            print("full", flush=True)
            time.sleep(float(renewed[0]) / int(count) if renewed else 1e6)


if __name__ == "__main__":
    main()
