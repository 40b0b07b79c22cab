"""Shares of work and waiting, from the record of a real client at fixed times."""

from __future__ import annotations

import dataclasses

import pytest

import stagewatch
from stagewatch.ranks.model import rank_of
from stagewatch.top.rows import COLUMNS, Row, cells
from stagewatch.top.shares import WINDOW_SECONDS, WorkShares
from tests.client.conftest import Client, Clock, client, clock, directory, warned

__all__ = ["client", "clock", "directory", "warned"]


def shares(seen: WorkShares, client: Client, clock: Clock) -> list[tuple[float, float]]:
    rank = rank_of(dataclasses.replace(client.record(), name="1"))
    found = seen.of([rank], clock.now / 1e9)
    return [(round(work, 3), round(waiting, 3)) for work, waiting in found.values()]


def step(clock: Clock, work: float, waiting: float) -> None:
    with stagewatch.stage("train"):
        clock.forward(work)
        with stagewatch.collective("world", op="all_reduce", size=4):
            clock.forward(waiting)


def test_the_last_minute_is_divided_and_not_what_was_before_it(
    clock: Clock, client: Client
) -> None:
    seen = WorkShares()
    assert shares(seen, client, clock) == []
    step(clock, 30, 30)
    assert shares(seen, client, clock) == [(0.5, 0.5)]
    step(clock, 0.8 * WINDOW_SECONDS, 0.2 * WINDOW_SECONDS)
    assert shares(seen, client, clock) == [(0.8, 0.2)]


@pytest.mark.parametrize(
    ("both", "text"), [((1.0, 0.0), "100%/0%"), ((0.625, 0.375), "62%/38%"), (None, "-")]
)
def test_both_shares_stand_in_one_column(both: tuple[float, float] | None, text: str) -> None:
    column = next(column for column in COLUMNS if column.title == "WORK/WAIT")
    row = Row("540", "train", "0", work_and_waiting=both)
    (cell,) = cells(row, [(column, column.width)])
    assert cell.text.strip() == text


def test_who_works_most_stands_on_top_and_what_is_not_known_below() -> None:
    column = next(column for column in COLUMNS if column.title == "WORK/WAIT")
    rows = [
        Row("540", "train", str(rank), work_and_waiting=both)
        for rank, both in enumerate([(0.5, 0.5), None, (0.9, 0.1)])
    ]
    assert [row.rank for row in sorted(rows, key=column.sort)] == ["2", "0", "1"]
