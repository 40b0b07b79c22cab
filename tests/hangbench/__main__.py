"""Checks, rehearses and draws shapes, and says what each kind of evidence is worth:
`python -m tests.hangbench check | rehearse FILE ... | draw | ablate DIRECTORY`.

A rehearsal plays shapes without a detector, watches each for a while after its trigger, and prints
what its processes do then.  `draw --seed N --count K --into DIRECTORY` writes random shapes.
`ablate` judges recorded shapes without one kind of evidence after the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from tests.hangbench.ablation import ablate
from tests.hangbench.drawn import write
from tests.hangbench.field import Field
from tests.hangbench.player import Played, lacks, play
from tests.hangbench.recorded import RECORDED, cases
from tests.hangbench.shape import SLOW_SET, Shape, ShapeError, find, find_programs, load
from tests.hangbench.slow_score import own_work, slowness, unsound

REHEARSAL_SECONDS = 25.0


def main(arguments: list[str]) -> int:
    """Check or rehearse; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.hangbench", description=__doc__)
    parser.add_argument("what", choices=("check", "rehearse", "draw", "ablate"))
    parser.add_argument("files", nargs="*", type=Path, help="all shapes, if none is given")
    parser.add_argument("--seconds", type=float, default=REHEARSAL_SECONDS, help="after a trigger")
    parser.add_argument("--jobs", type=int, default=6, help="shapes at a time")
    parser.add_argument("--seed", type=int, default=0, help="of the first shape that is drawn")
    parser.add_argument("--count", type=int, default=1, help="shapes to draw")
    parser.add_argument("--into", type=Path, help="folder of the shapes that are drawn")
    given = parser.parse_args(arguments)
    if given.what == "draw":
        if given.into is None:
            parser.error("draw needs --into DIRECTORY")
        print(f"{len(write(given.seed, given.count, given.into))} shapes in {given.into}")
        return 0
    if given.what == "ablate":
        print(ablate(list(cases(given.files[0] if given.files else RECORDED))))
        return 0
    try:
        shapes = [load(file) for file in given.files] if given.files else find_all()
    except ShapeError as error:
        print(error, file=sys.stderr)
        return 1
    if given.what == "check":
        print(f"{len(shapes)} shapes are well formed")
        return 0
    return _rehearse(shapes, given.seconds, given.jobs)


def find_all() -> list[Shape]:
    """Every shape, and every program."""
    return find("all") + find(SLOW_SET) + find_programs()


def _rehearse(shapes: list[Shape], seconds: float, jobs: int) -> int:
    for shape in shapes:
        if lack := lacks(shape):
            print(f"{shape.name}: {lack}")
    ready = [dataclasses.replace(shape, watch=seconds) for shape in shapes if not lacks(shape)]
    with Field(watched=False) as field:
        play(ready, field, jobs, 4.0, lambda line: print(line, flush=True), _tell)
    return 0


def _tell(played: Played) -> None:
    """Print what the processes were doing at the end."""
    print(f"== {played.shape.name}: {played.sound() or 'as the shape says'}")
    if played.triggered:
        print(f"   trigger {played.triggered - played.began:.0f} s after the beginning")
    if played.shape.slow and played.triggered:
        own = own_work(played.looks, played.triggered + 1)
        print(
            f"   slow by {slowness(played)}, own work a step: {own}: {unsound(played) or 'sound'}"
        )
    last = played.looks[-1]
    for rank, (mark, inside, step) in enumerate(last.ranks):
        status = played.statuses.get(rank)
        where = "in a collective" if inside else "outside collectives"
        if status is not None:
            where = "has finished" if rank in played.finished else f"exit status {status}"
        elif inside:
            where += f" for {last.time - inside:.0f} s"
        print(f"   {rank}: step {step}, {where}, last action began {last.time - mark:.0f} s ago")
    if played.log.strip():
        print("   log: " + played.log.strip().replace("\n", "\n        ")[-1500:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
