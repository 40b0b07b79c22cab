"""Figures that can be printed, whatever stands in them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from matplotlib.backends.backend_agg import FigureCanvasAgg

from stagewatch.report.drawing import COLUMN, PAGE, SMALL, Drawing, Paper
from stagewatch.report.figures import timeline
from stagewatch.report.history import Grid
from stagewatch.report.incidents import Incident, Sign
from stagewatch.report.jobs import JobStory
from stagewatch.report.phases import Phases

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


def incident(node: str = "n1", job: str = "7") -> Phases:
    """A drain with a job, none of which lasts long."""
    signs = (
        Sign("fault", 1000, 1001, False, node),
        Sign("drain", 1010, 1500, True, node, text=node),
    )
    running = {job: [1.0] * 10 + [0.0] * 20 + [None] * 10 + [1.0] * 60}
    return Phases(
        Incident(signs),
        began=1000,
        grid=Grid(950, 10, 100),
        injected=1000,
        detected=1002,
        drained=1004,
        node_back=1490,
        jobs=(JobStory(job, True, ended=1050, resumed=1495),),
        running=running,
    )


@pytest.mark.parametrize("format", ["svg", "pdf", "png"])
def test_hostile_labels_are_in_every_file(format: str) -> None:
    for text in HOSTILE:
        assert timeline(incident(text, text), "timeline-1").file(format)


@settings(max_examples=15)
@given(some.text())
def test_any_text_makes_a_drawing_that_parses(text: str) -> None:
    drawing = timeline(incident(text, text), "timeline-1")
    ElementTree.fromstring(drawing.inline())
    ElementTree.fromstring(drawing.svg)


def test_no_text_is_smaller_than_seven_points() -> None:
    for paper in (PAGE, COLUMN):
        drawing = timeline(incident(), "timeline-1", paper)
        text = drawing.svg
        unit = paper.inches * 72 / float(re.findall(r'viewBox="0 0 ([0-9.]+)', text)[0])
        found = re.findall(r"font(?:-size)?: [^;]*?([0-9.]+)px", text)
        sizes = [float(size) * unit for size in found]
        assert sizes
        assert min(sizes) >= SMALL == 7.0
        assert f"min-width: {paper.inches:g}in" in drawing.inline()


def test_a_figure_is_the_same_every_time() -> None:
    for format in ("svg", "pdf", "png"):
        assert timeline(incident(), "a").file(format) == timeline(incident(), "a").file(format)
    assert timeline(incident(), "a").svg != timeline(incident(), "b").svg


def cut_off(drawing: Drawing) -> float:
    """Inches by which a figure is larger than its paper, at the side where most is lost."""
    FigureCanvasAgg(drawing.figure).draw()
    drawn = drawing.figure.get_tightbbox()
    width, height = drawing.figure.get_size_inches()
    return max(0.0, -drawn.x0, -drawn.y0, drawn.x1 - width, drawn.y1 - height)


@pytest.mark.parametrize("paper", [PAGE, COLUMN])
@pytest.mark.parametrize("node", ["n1", "a-node-of-a-very-long-name-in-a-large-cluster-0017"])
def test_nothing_of_a_figure_is_cut_off(node: str, paper: Paper) -> None:
    assert cut_off(timeline(incident(node, "7" * 40), "timeline-1", paper)) < 0.02
