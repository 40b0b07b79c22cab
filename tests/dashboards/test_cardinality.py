"""No panel asks for more series than a browser draws, at 1,024 nodes x 8 GPUs x 8 ranks.

`make bench ARGS=boards` asks a real Prometheus that holds so many series.
"""

from __future__ import annotations

import re

import pytest

from stagewatch.dashboards.panels import MOST_SERIES, Column, table, timeseries, worst
from tests.dashboards import boards
from tests.dashboards.boards import NAMES, data_panels, load
from tests.dashboards.cardinality import most_series


def bound(expr: str, *, instant: bool = False) -> int:
    return most_series(boards.Query("board", "panel", expr, instant))


@pytest.mark.parametrize("name", NAMES)
def test_no_panel_returns_more_than_300_series_with_all_chosen(name: str) -> None:
    many = {}
    for panel in data_panels(load(name)):
        series = [bound(each["expr"], instant=each["instant"]) for each in panel["targets"]]
        if sum(series) > MOST_SERIES:
            many[panel["title"]] = series
    assert many == {}


@pytest.mark.parametrize("name", NAMES)
def test_annotations_are_few(name: str) -> None:
    many = {each.where: bound(each.expr) for each in boards.annotation_queries(name)}
    assert max(many.values()) <= MOST_SERIES, many


def test_worst_chooses_at_the_end_of_the_time_range_by_something_else_if_asked() -> None:
    plain = worst("max by (node) (rate(a_total{NODE}[$__rate_interval]) or b{NODE})", most=3)
    assert plain.endswith(
        " and topk(3, max by (node)"
        " (rate(a_total{NODE}[$__rate_interval] @ end()) or b{NODE} @ end()))"
    )
    other = worst("max by (rank) (a{JOB})", "max by (rank) (b{JOB})", least=True)
    assert other == "max by (rank) (a{JOB}) and bottomk(20, max by (rank) (b{JOB} @ end()))"


def test_a_table_asks_all_its_columns_for_the_rows_that_are_largest_in_one() -> None:
    columns = [Column("A", "max by (node) (a)"), Column("B", "max by (node, gpu) (b) or c")]
    panel = table("T", "D.", columns, order="A")
    first, second = (target.expr for target in panel.targets)
    assert first == "topk(50, max by (node) (a))"
    assert second == f"(max by (node, gpu) (b) or c) and on (node) {first}"
    with pytest.raises(ValueError, match="aggregates"):
        table("T", "D.", [Column("A", "a"), Column("B", "b")], order="A")


def test_lines_and_cells_of_nodes_and_jobs_lead_to_their_boards() -> None:
    lines = timeseries("T", "D.", "a", "{{node}} of {{job_id}}").field["links"]
    cells = table("T", "D.", [Column("A", "max by (node) (a)")]).overrides[-1]["properties"]
    for link, variable in (
        (lines[0], "node"),
        (lines[1], "job_id"),
        (cells[0]["value"][0], "node"),
    ):
        for kept in ("${__url_time_range}", "${cluster:queryparam}", "${datasource:queryparam}"):
            assert kept in link["url"]
        assert re.search(rf"&var-{variable}=\$\{{__\w+(\.\w+)+\}}$", link["url"])
