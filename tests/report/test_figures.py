"""Figures that can be printed, whatever stands in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stagewatch.report.components import Component, target_of
from stagewatch.report.deviations import Finding, Signal, baseline_of
from stagewatch.report.diagnosis import MOMENTS, Diagnosis, Place, Suspect, View
from stagewatch.report.events import Event, Fault, Milestone
from stagewatch.report.experiment import PANELS, Cost, Experiment
from stagewatch.report.history import Grid
from stagewatch.report.periods import Period

if TYPE_CHECKING:  # matplotlib takes two seconds, and one of the workers draws
    from stagewatch.report.figures import Drawing

HOSTILE = [
    "$x_1^2$",
    "a$b",
    "$\\undefined{",
    "漢字",
    "\x00\x1b[31m\n",
    "<b>&amp;",
    "\u202eabc",
    "x" * 9000,
]
BASELINE = [1.0, 1.1, 0.9, 1.0, 1.05, 1.0]


def finding(text: str) -> Finding:
    """A series of a node of this name that leaves its baseline for ten looks."""
    signal, base = Signal(text, "ratio", 0.15, "io_pressure_seconds_total"), baseline_of(BASELINE)
    values = [1.0] * 10 + [9.0] * 10 + [None] * 20 + [1.0] * 60
    return Finding(
        signal, Component("node", node=text), "", text, base, 1050.0, True, 9.0, 9.0, values,
        signal.severities(base, values), past=BASELINE,
    )  # fmt: skip


def experiment(*texts: str) -> Experiment:
    """A fault on the first of these nodes, and a series of each."""
    text, node = texts[0], Component("node", node=texts[0])
    grid, stage = Grid(950, 10, 100), Component("rank", "train", "0")
    fault = Fault("f", "io_load", text, "", "", "lab", 1000.0, 1200.0)
    return Experiment(
        fault=fault,
        target=target_of(text),
        job_id=text,
        nodes=(text,),
        roles={"train": 1},
        baseline=Period(890, 950),
        run=Period(950, 1950),
        interval=10.0,
        before=Grid(890, 10, 6),
        grid=grid,
        view=View(list(map(finding, texts)), [Event(1100.0, "failure", stage, "train", text)], []),
        milestones={
            name: Milestone(1000.0 + 10 * at, text) for at, (name, *_) in enumerate(MOMENTS)
        },
        suspects=[Suspect(node, 1050.0, "", text, 9.0, right=True)],
        diagnosis=Diagnosis(Place(), Place(), "", 1),
        alone={name: Milestone(None, "") for name, *_ in MOMENTS},
        recorded=0,
        cost=Cost(),
    )


def figures(*texts: str) -> list[Drawing]:
    """Both figures of an experiment."""
    from stagewatch.report.figures import anomaly, propagation

    shown = experiment(*(texts or ("n1",)))
    return [propagation(shown), anomaly(shown)]


def parse(drawings: list[Drawing]) -> None:
    for drawing in drawings:
        ElementTree.fromstring(drawing.inline())
        ElementTree.fromstring(drawing.svg)


def test_hostile_labels_are_in_every_file() -> None:
    drawings = figures(*HOSTILE)
    parse([*drawings, *figures(*HOSTILE[PANELS:])])  # of more series there is no panel
    assert all(drawing.file("pdf") for drawing in drawings)


@settings(max_examples=2)
@given(some.lists(some.text(), min_size=PANELS, max_size=PANELS, unique=True))
def test_any_text_makes_a_drawing_that_parses(texts: list[str]) -> None:
    parse(figures(*texts))


def test_no_text_is_smaller_than_seven_points() -> None:
    from stagewatch.report.figures import INCHES, SMALL

    for drawing in figures():
        unit = INCHES * 72 / float(re.findall(r'viewBox="0 0 ([0-9.]+)', drawing.svg)[0])
        found = re.findall(r"font(?:-size)?: [^;]*?([0-9.]+)px", drawing.svg)
        sizes = [float(size) * unit for size in found]
        assert sizes
        assert min(sizes) >= SMALL == 7.0
        assert f"min-width: {INCHES:g}in" in drawing.inline()


def test_a_figure_is_the_same_every_time() -> None:
    for one, again in zip(figures(), figures(), strict=True):
        for format in ("svg", "pdf"):
            assert one.file(format) == again.file(format)


def cut_off(drawing: Drawing) -> float:
    """Inches by which a figure is larger than its paper, at the side where most is lost."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(drawing.figure).draw()
    drawn = drawing.figure.get_tightbbox()
    width, height = drawing.figure.get_size_inches()
    return max(0.0, -drawn.x0, -drawn.y0, drawn.x1 - width, drawn.y1 - height)


@pytest.mark.parametrize("node", ["n1", "a-node-of-a-very-long-name-in-a-large-cluster-0017"])
def test_nothing_of_a_figure_is_cut_off(node: str) -> None:
    assert max(map(cut_off, figures(node))) < 0.02
