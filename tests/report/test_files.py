"""What is written: pages that need nothing else, and texts that others chose."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as some

from stagewatch.cli import main
from stagewatch.core.processes import Children
from stagewatch.report.records import csv_text, json_text
from tests.report import hyperpod
from tests.report.contention import contention
from tests.report.filled import filled_prometheus
from tests.report.paid import paid

HOSTILE = "=1+1</style></svg><script>alert(1)</script><img src=x onerror=a()>\"'&{{7*7}}"


class Page(HTMLParser):
    """The tags of a page, its links to elsewhere, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "action", "data"):
                self.links.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def written(
    children: Children, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Path]]:
    """The reports of histories in which every text that somebody may choose is hostile."""
    directory = tmp_path_factory.mktemp("hostile")

    def write(kind: str, url: str, *more: str) -> None:
        given = ["report", kind, "--prometheus", url, "--output", str(directory / kind)]
        assert main([*given, *more]) == 0

    url = filled_prometheus(children, directory / "a", contention(hostile=HOSTILE))
    write("experiment", url, "--fault", "cpu-1")
    url = filled_prometheus(children, directory / "b", hyperpod.hyperpod(hostile=HOSTILE))
    write("recovery", url, "--from", str(hyperpod.T - 3600))
    url = filled_prometheus(children, directory / "c", paid(hostile=f"{HOSTILE}\nline"))
    write("goodput", url, "--month", "2026-10", "--price", "2.5")
    yield {name: directory / name for name in ("experiment", "recovery", "goodput")}


@pytest.mark.parametrize("kind", ["experiment", "recovery", "goodput"])
def test_hostile_text_is_shown_and_never_markup(written: dict[str, Path], kind: str) -> None:
    page = Page((written[kind] / "report.html").read_text())
    assert HOSTILE in page.text
    assert not {"script", "img", "iframe", "object", "embed", "form"} & set(page.tags)
    assert page.handlers == []
    assert page.tags.count("style") == 1


@pytest.mark.parametrize("kind", ["experiment", "recovery", "goodput"])
def test_a_page_needs_nothing_from_elsewhere(written: dict[str, Path], kind: str) -> None:
    text = (written[kind] / "report.html").read_text()
    assert {link for link in Page(text).links if not link.startswith("#")} == {"data:,"}
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


@pytest.mark.parametrize("kind", ["experiment", "recovery", "goodput"])
def test_every_colour_of_a_page_is_defined(written: dict[str, Path], kind: str) -> None:
    text = (written[kind] / "report.html").read_text()
    used = set(re.findall(r"var\((--[a-z-]+)\)", text))
    assert used
    assert used <= set(re.findall(r"(--[a-z-]+):", text))
    shown = set(re.findall(r'class="dot (b-[a-z]+)"', text))
    assert shown
    assert shown <= set(re.findall(r"\.(b-[a-z]+) {", text))


def test_figures_are_drawings_of_their_own(written: dict[str, Path]) -> None:
    files = sorted(written["experiment"].glob("*.svg"))
    assert files
    for file in files:
        root = ElementTree.parse(file).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("width") == "504pt"  # 7 in
        assert "var(" not in file.read_text()  # which converters for print do not know
        assert not [each for each in root.iter() if each.tag.endswith(("script", "foreignObject"))]
        assert file.with_suffix(".pdf").read_bytes().startswith(b"%PDF-")


def test_figures_on_a_page_do_not_share_names(written: dict[str, Path]) -> None:
    page = (written["experiment"] / "report.html").read_text()
    names = re.findall(r'\bid="([^"]*)"', page)
    assert names
    assert len(names) == len(set(names))


def test_hostile_text_is_no_formula_in_a_spreadsheet(written: dict[str, Path]) -> None:
    for kind in ("experiment", "goodput"):
        rows = csv.reader(io.StringIO((written[kind] / "report.csv").read_text()))
        for cell in (cell for row in rows for cell in row):
            assert not cell.startswith(("=", "@", "+", "\t")), cell
            assert not cell.startswith("-") or float(cell) < 0


@given(some.lists(some.lists(some.text() | some.none() | some.floats(), min_size=2, max_size=2)))
def test_any_table_can_be_read_back_and_holds_no_formula(rows: list[list[object]]) -> None:
    text = csv_text(("a", "b"), rows)
    back = list(csv.reader(io.StringIO(text)))
    assert len(back) == len(rows) + 1
    for row, given_row in zip(back[1:], rows, strict=True):
        for cell, value in zip(row, given_row, strict=True):
            if isinstance(value, str):
                assert not cell.lstrip().startswith(("=", "+", "-", "@"))


@given(some.recursive(some.none() | some.floats() | some.text(), some.lists))
def test_json_never_holds_nan(value: object) -> None:
    def refuse(text: str) -> None:
        raise AssertionError(text)

    json.loads(json_text({"value": value}), parse_constant=refuse)
