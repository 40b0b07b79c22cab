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
from stagewatch.report.experiment import Cost, Experiment
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


def experiment(text: str = "n1") -> Experiment:
    """A fault on a node of this name, on which a series leaves its baseline for ten looks."""
    grid = Grid(950, 10, 100)
    signal, node = (
        Signal("pressure", "ratio", 0.15, "io_pressure_seconds_total"),
        Component("node", node=text),
    )
    values = [1.0] * 10 + [9.0] * 10 + [None] * 20 + [1.0] * 60
    base = baseline_of(BASELINE)
    severities = signal.severities(base, values)
    finding = Finding(
        signal, node, "", text, base, 1050.0, True, 9.0, 9.0, values, severities, past=BASELINE
    )
    stage = Component("rank", "train", "0")
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
        view=View([finding], [Event(1100.0, "failure", stage, "train", text)], []),
        milestones={
            name: Milestone(1000.0 + 10 * at, text) for at, (name, *_) in enumerate(MOMENTS)
        },
        suspects=[Suspect(node, 1050.0, "", text, 9.0, right=True)],
        diagnosis=Diagnosis(Place(), Place(), "", 1),
        alone={name: Milestone(None, "") for name, *_ in MOMENTS},
        recorded=0,
        cost=Cost(),
    )


def figures(text: str = "n1") -> list[Drawing]:
    """Both figures of an experiment."""
    from stagewatch.report.figures import anomaly, propagation

    return [propagation(experiment(text)), anomaly(experiment(text))]


def parse(drawings: list[Drawing]) -> None:
    for drawing in drawings:
        ElementTree.fromstring(drawing.inline())
        ElementTree.fromstring(drawing.svg)


def test_hostile_labels_are_in_every_file() -> None:
    for text in HOSTILE:
        parse(figures(text))
    assert all(drawing.file("pdf") for drawing in figures(" ".join(HOSTILE)))


@settings(max_examples=8)
@given(some.text())
def test_any_text_makes_a_drawing_that_parses(text: str) -> None:
    parse(figures(text))


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
    for format in ("svg", "pdf"):
        assert [one.file(format) for one in figures()] == [one.file(format) for one in figures()]


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
