"""A rank that writes whatever may do harm into its record, with arguments as `tests.lab.rank`."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path

import stagewatch
from stagewatch.client import _api
from stagewatch.core.processes import die_with_parent
from stagewatch.record import L_PROGRESS, LANES_AT, WORD

NAMES = 10_000


def main(rank: int, options: dict[str, str]) -> None:
    """Never stop."""
    die_with_parent()
    stagewatch.init(rank=rank, **options)
    record = _api._recorder
    words = record._words
    for number in itertools.count():
        name = f'"}} 1\n# {number % NAMES}\udcff\\' + "x" * 300
        with stagewatch.stage(name, step=-number):
            stagewatch.scalar(f"nan {number}", float("nan"))
            stagewatch.scalar(f"inf {number}", float("inf"))
            stagewatch.scalar(f"huge {number}\n", 1e308)
            stagewatch.collective(name)
            jump = (0, 2**62, -(2**62))[number % 3]
            words[LANES_AT // WORD + L_PROGRESS] = jump
            forge(record.path, number)
            time.sleep(0.002)


def forge(path: Path, number: int) -> None:
    """Change names behind the client's back, as a program of one's own could."""
    from stagewatch.record import COLLECTIVES_AT, SCALARS_AT

    with path.open("r+b") as file:
        for at in (SCALARS_AT, COLLECTIVES_AT):
            file.seek(at)
            file.write(os.urandom(8) + b'"\n\xff\xfe{}=' + str(number).encode())


if __name__ == "__main__":
    main(int(sys.argv[2]), json.loads(sys.argv[4]))
