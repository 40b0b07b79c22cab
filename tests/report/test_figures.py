"""Figures that can be printed, whatever stands in them."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from matplotlib.patches import Rectangle

from stagewatch.report.drawing import (
    MAX_TEXT,
    NEAR,
    ONE_COLUMN,
    SMALL,
    TWO_COLUMNS,
    Drawing,
    Mark,
    fitted,
    joined,
)
from stagewatch.report.figures import (
    LARGEST,
    WIDTHS,
    Bar,
    Group,
    _short_path,
    diagnosis,
    limits,
    round_values,
    timeline,
)
from stagewatch.report.history import Grid
from stagewatch.report.incidents import Incident, Sign
from stagewatch.report.jobs import JobStory
from stagewatch.report.periods import number
from stagewatch.report.phases import Phases
from tests.report.drawn import cut_off, words

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


def bars(title: str, what: str, seconds: float | None) -> Drawing:
    """A figure with texts that others chose."""
    return diagnosis([Group(title, [Bar(what, seconds, "detect")], 60.0)])


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
        resolution=5,
        injected=1000,
        detected=1002,
        drained=1004,
        node_back=1490,
        jobs=(JobStory(job, True, ended=1050, resumed=1495),),
        grid=Grid(950, 10, 100),
        running=running,
    )


def test_hostile_labels_are_drawn_as_they_are() -> None:
    groups = [Group(text, [Bar(text, 5.0, "detect")], 60.0) for text in HOSTILE]
    shown = words(diagnosis(groups))
    for text in HOSTILE:
        assert text in shown or not text.isprintable() or len(text) > 20
    assert all(each.isprintable() and len(each) < 200 for each in shown)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_node_and_a_job_of_any_name_are_drawn(text: str) -> None:
    shown = words(timeline(incident(text, text), "timeline-1"))
    assert all(each.isprintable() and len(each) < 200 for each in shown)


@pytest.mark.parametrize("format", ["svg", "pdf", "png"])
def test_hostile_labels_are_in_every_file(format: str) -> None:
    groups = [Group(text, [Bar(text, None, "detect")], 60.0) for text in HOSTILE]
    assert diagnosis(groups).file(format)


@settings(max_examples=15)
@given(some.text(), some.none() | some.floats(0, 1e12))
def test_any_text_makes_a_drawing_that_parses(text: str, seconds: float | None) -> None:
    drawing = bars(text, text, seconds)
    ElementTree.fromstring(drawing.inline())
    ElementTree.fromstring(drawing.svg)


def test_no_text_is_smaller_than_seven_points() -> None:
    for drawing in (
        bars("title", "detected", 3.0),
        *(timeline(incident(), "timeline-1", width) for width in WIDTHS),
    ):
        text = drawing.svg
        unit = drawing.width * 72 / float(re.findall(r'viewBox="0 0 ([0-9.]+)', text)[0])
        found = re.findall(r"font(?:-size)?: [^;]*?([0-9.]+)px", text)
        sizes = [float(size) * unit for size in found]
        assert sizes
        assert min(sizes) >= SMALL == 7.0
        assert f"min-width: {drawing.width:g}in" in drawing.inline()


def test_a_figure_is_the_same_every_time() -> None:
    for format in ("svg", "pdf", "png"):
        assert timeline(incident(), "a").file(format) == timeline(incident(), "a").file(format)
    assert timeline(incident(), "a").svg != timeline(incident(), "b").svg


def test_a_drawing_leaves_the_settings_of_matplotlib_alone() -> None:
    before = dict(matplotlib.rcParams)
    bars("title", "detected", 3.0).file("pdf")
    assert dict(matplotlib.rcParams) == before


def test_what_was_not_seen_is_no_bar_of_length_zero() -> None:
    group = Group("view", [Bar("detected", None, "detect"), Bar("localised", 0.0, "localise")], 60)
    drawing = diagnosis([group])
    assert "not seen in 60.0 s" in words(drawing)
    assert len(re.findall(r"fill: url\(#", drawing.inline())) == 1


@given(some.text(max_size=200))
def test_a_fitted_text_is_short_and_printable(text: str) -> None:
    assert len(fitted(text)) <= MAX_TEXT
    assert fitted(text).isprintable()


def test_a_text_that_fits_is_not_cut() -> None:
    assert fitted("rollout 2") == "rollout 2"
    assert fitted("a\tb") == "a�b"


@given(
    some.lists(some.tuples(some.floats(-60, 400), some.sampled_from(["clear", "job ended 5 s"])))
)
def test_moments_that_have_words_of_their_own_are_apart(given: list[tuple[float, str]]) -> None:
    kept = joined([Mark(when, words, "clear") for when, words in given], -60, 400)
    for one, other in itertools.pairwise(kept):
        assert other.when - one.when >= NEAR[TWO_COLUMNS] * 460
    told = [word for mark in kept for word in mark.words.split(", ")]
    assert sorted(told) == sorted(words for _, words in given)


@given(some.lists(some.floats(-LARGEST, LARGEST) | some.floats(0, 1e-300), min_size=1))
def test_an_axis_has_a_length_and_all_values_on_it(values: list[float]) -> None:
    low, high = limits(values)
    assert high - low > 1e-9 * max(abs(low), abs(high))
    assert low <= max(min(values), low)
    assert all(low - 1e-30 <= value <= high for value in values)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_time_line_says_what_its_colours_and_letters_mean(width: float) -> None:
    shown = words(timeline(incident(), "timeline-1", width))
    assert {"job runs", "job does not run", "not known", "out of order", "fault marked"} <= {*shown}
    assert "stalled" not in shown  # no row has that colour
    told = " ".join(" ".join(shown).split())  # a key is wrapped
    for moment in ("injected", "out of service 4.0 s", "job ended 50.0 s", "node back"):
        assert moment in told


def test_a_colour_that_the_window_leaves_out_is_not_explained() -> None:
    known = replace(incident(), running={"7": [None] + [1.0] * 60 + [None] * 39})
    assert "not known" not in words(timeline(known, "timeline-1"))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_sign_of_a_moment_is_wider_than_the_line_of_the_moment(width: float) -> None:
    restart = Sign("restart", 1050, 1050, False, "", "7")
    phases = replace(incident(), incident=Incident((*incident().incident.signs, restart)))
    drawing = timeline(phases, "timeline-1", width)
    (axes,) = drawing.figure.axes
    low, high = axes.get_xlim()
    shapes = [each for each in axes.patches if isinstance(each, Rectangle)]
    least = min(each.get_width() for each in shapes) / (high - low) * width
    assert least > 3 * 1.1 / 72  # of the line


@pytest.mark.parametrize("width", WIDTHS)
def test_a_length_of_time_is_in_one_line_of_the_key(width: float) -> None:
    told = words(timeline(incident(), "timeline-1", width))
    assert [each for each in told if "8 min 15 s" in each]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_of_a_figure_is_cut_off(width: float) -> None:
    names = ("n1", "a-node-of-a-very-long-name-in-a-large-cluster-0017")
    drawn = [timeline(incident(each, "7" * 40), "timeline-1", width) for each in names]
    group = Group("Everything measured", [Bar("localised", None, "detect")], 86400.0)
    for each in (*drawn, diagnosis([group, group], width=width)):
        assert cut_off(each) < 0.02


@pytest.mark.parametrize(
    ("low", "high", "unit", "shown"),
    [
        (0.0, 14.7 * 2**20, "B", ["0 B", "5 MiB", "10 MiB", "15 MiB"]),
        (0.0, 300.0, "B/s", ["0 B/s", "100 B/s", "200 B/s", "300 B/s"]),
        (0.0, 45.0, "s", ["0 s", "20 s", "40 s", "60 s"]),
    ],
)
def test_an_axis_has_round_values(low: float, high: float, unit: str, shown: list[str]) -> None:
    assert [number(each, unit) for each in round_values(low, high, unit)] == shown


LONG = "node-a /mnt/nfs/runs/ppo/checkpoints/700"


@pytest.mark.parametrize(
    ("label", "width", "shown"),
    [
        (LONG, TWO_COLUMNS, "node-a /mnt/…/checkpoints/700"),
        (LONG, ONE_COLUMN, "node-a …/checkpoints/700"),
        ("/mnt/nfs/checkpoints", TWO_COLUMNS, "/mnt/nfs/checkpoints"),
        ("rollout 2", ONE_COLUMN, "rollout 2"),
        ("/" * 40, ONE_COLUMN, "/" * 40),
    ],
)
def test_a_path_keeps_its_end(label: str, width: float, shown: str) -> None:
    assert _short_path(label, width) == shown


def test_nodes_that_only_hold_the_marker_have_no_row() -> None:
    signs = tuple(Sign("fault", 1000, 1060, False, f"n{at}", text="kill on n2") for at in range(4))
    gone = Sign("rank_gone", 1002, 1060, False, "n2", "7")
    phases = Phases(Incident((*signs, gone)), began=1000, resolution=5, grid=Grid(950, 10, 100))
    shown = words(timeline(phases, "timeline-1"))
    assert [each for each in shown if each.startswith("fault,")] == ["fault, kill on n2"]
    assert not any("n1" in each or "n3" in each for each in shown)
