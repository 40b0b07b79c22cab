"""How fast and how rightly hangs are found: HangBench, beside other detectors on the same runs."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from stagewatch.judgement.watch import Watch
from tests.hangbench.detectors import others
from tests.hangbench.drawn import write as draw
from tests.hangbench.field import OWN, SHARED, Field
from tests.hangbench.player import Played, lacks, play
from tests.hangbench.recorded import Recorder, accept, cases, replay
from tests.hangbench.results import good, markdown, write
from tests.hangbench.score import Outcome, collect, judge
from tests.hangbench.shape import Shape, ShapeError, bare, find, find_programs, load

CORES = 5.0
"""Shapes at a time may want so much together; waiting ranks spin at the lowest priority, and shapes
say what they want at their worst."""


def main(arguments: Sequence[str] = ()) -> None:
    """Play shapes, and print and write how they were judged."""
    parser = argparse.ArgumentParser(prog='make bench ARGS="accuracy ..."', description=__doc__)
    parser.add_argument("--shapes", metavar="SET", default="all", help="default: all about hangs")
    parser.add_argument(
        "--programs", action="store_true", help="play the small real programs instead of shapes"
    )
    parser.add_argument("--bare", action="store_true", help="play the programs without the client")
    parser.add_argument("--only", action="append", default=[], help="part of a name, repeatable")
    parser.add_argument("--jobs", type=int, default=12, help="shapes at a time (default: 12)")
    parser.add_argument(
        "--into", type=Path, default=Path("build/hangbench"), help="folder of the results"
    )
    parser.add_argument(
        "--drawn", type=int, default=0, help="play so many random shapes instead of those in files"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first random shape")
    parser.add_argument(
        "--record", type=Path, metavar="DIRECTORY", help="write a case file of each shape"
    )
    parser.add_argument(
        "--replay",
        type=Path,
        metavar="DIRECTORY",
        help="judge the case files of a directory again, and play nothing",
    )
    parser.add_argument(
        "--accept", action="store_true", help="have the test of a replay expect its answers"
    )
    given = parser.parse_args(arguments)
    if given.replay:
        _replay(given.replay, accepted=given.accept)
        return
    with tempfile.TemporaryDirectory(prefix="hangbench-drawn-") as folder:
        try:
            if given.drawn:
                files = draw(given.seed, given.drawn, Path(folder))
                words = given.only or [""]
                shapes = [load(file) for file in files if any(w in file.stem for w in words)]
            elif given.programs:
                shapes = find_programs(tuple(given.only))
                if given.bare:
                    shapes = [shape if lacks(shape) else bare(shape) for shape in shapes]
            else:
                shapes = find(given.shapes, tuple(given.only))
        except ShapeError as error:
            sys.exit(str(error))
        _play(shapes, given)


def _replay(directory: Path, *, accepted: bool) -> None:
    began = time.monotonic()
    outcomes = replay(cases(directory))
    if accepted:
        accept(outcomes, directory)
    print(f"{len(outcomes)} shapes in {time.monotonic() - began:.1f} s")
    print(markdown(outcomes))


def _play(shapes: list[Shape], given: argparse.Namespace) -> None:
    began = time.monotonic()
    outcomes = run(shapes, given.jobs, into=given.record)
    print(f"{len(outcomes)} shapes in {(time.monotonic() - began) / 60:.0f} min")
    print(write(outcomes, given.into))
    print(f"written to {given.into}")


def run(shapes: Sequence[Shape], jobs: int, *, into: Path | None = None) -> list[Outcome]:
    """Play shapes and judge each; those that this machine cannot play are said and left out.

    `into`: a directory for a case file of each, written once it has been played.
    """
    for shape in shapes:
        if lack := lacks(shape):
            print(f"{shape.name} is left out: {lack}", flush=True)
    ready = [shape for shape in shapes if not lacks(shape)]
    outcomes: list[Outcome] = []

    def say(line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)

    nodes = SHARED + OWN if any(shape.disturbs for shape in ready) else SHARED
    with Field(watched=True, nodes=nodes) as field:
        recorder = None
        if into is not None and field.api is not None:
            recorder = Recorder(Watch(field.api), into, time.time())

        def done(played: Played) -> None:
            assert field.api is not None
            outcome = judge(played, collect(field.api, played))
            outcome.others = others(played)
            outcomes.append(outcome)
            if recorder:
                recorder.add(played)
            as_expected = "as expected" if good(outcome) else "NOT as expected"
            verdict = outcome.unsound or f"{outcome.answer}, {as_expected}"
            say(f"{outcome.name}: {verdict} ({len(outcomes)} of {len(ready)})")
            if outcome.unsound and played.log:
                say(f"{outcome.name} wrote: {played.log}")

        play(ready, field, jobs, CORES, say, done)
    return outcomes
