"""How fast and how rightly slow ranks are named: HangBench's shapes about slowness.

Options: --shapes all|slow|healthy, --only PART-OF-NAME, --jobs N, --minutes N, --into DIRECTORY.
A shape is played for so many minutes, or until the right ones have been named twice.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.hangbench.field import Field
from tests.hangbench.player import Played, lacks, play
from tests.hangbench.shape import SLOW_SET, Shape, ShapeError, find
from tests.hangbench.slow_results import good, write
from tests.hangbench.slow_score import SlowOutcome, collect, judge, named_twice

CORES = 2.5
"""Shapes at a time may want so much together: rather less than for hangs, as time is measured.
Those that burn a CPU say that they want more, and are played alone."""


def main(arguments: Sequence[str] = ()) -> None:
    """Play shapes, and print and write how they were judged."""
    parser = argparse.ArgumentParser(prog='make bench ARGS="slow ..."', description=__doc__)
    parser.add_argument("--shapes", choices=("all", "slow", "healthy"), default="all")
    parser.add_argument("--only", action="append", default=[], help="part of a name, repeatable")
    parser.add_argument("--jobs", type=int, default=8, help="shapes at a time (default: 8)")
    parser.add_argument("--minutes", type=float, default=10.0, help="at most so long (default: 10)")
    parser.add_argument(
        "--into", type=Path, default=Path("build/slow"), help="folder of the results"
    )
    given = parser.parse_args(arguments)
    try:
        shapes = find(SLOW_SET, tuple(given.only))
    except ShapeError as error:
        sys.exit(str(error))
    if given.shapes != "all":
        shapes = [shape for shape in shapes if shape.healthy == (given.shapes == "healthy")]
    began = time.monotonic()
    outcomes = run(shapes, given.jobs, 60 * given.minutes)
    print(f"{len(outcomes)} shapes in {(time.monotonic() - began) / 60:.0f} min")
    print(write(outcomes, given.into))
    print(f"written to {given.into}")


def run(shapes: Sequence[Shape], jobs: int, watch: float) -> list[SlowOutcome]:
    """Play shapes, each for `watch` seconds after its trigger at most, and judge them; those that
    this machine cannot play are said and left out."""
    for shape in shapes:
        if lack := lacks(shape):
            print(f"{shape.name} is left out: {lack}", flush=True)
    ready = [
        dataclasses.replace(shape, watch=min(shape.watch, watch))
        for shape in shapes
        if not lacks(shape)
    ]
    outcomes: list[SlowOutcome] = []

    def say(line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)

    with Field(watched=True) as field:
        assert field.api is not None
        api = field.api

        def done(played: Played) -> None:
            outcome = judge(played, collect(api, played))
            outcomes.append(outcome)
            verdict = "as expected" if good(outcome) else "NOT as expected"
            told = "–" if outcome.told_after is None else f"told after {outcome.told_after:.0f} s"
            say(f"{outcome.name}: {outcome.unsound or f'{told}, {verdict}'}, slow by "
                f"{outcome.measured} ({len(outcomes)} of {len(ready)})")  # fmt: skip
            if outcome.unsound and played.log:
                say(f"{outcome.name} wrote: {played.log}")

        play(ready, field, jobs, CORES, say, done, named_twice(api))
    return outcomes
