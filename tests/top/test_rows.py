"""The lines of `stagewatch top`: they fit, stand in the asked order, and no name can break them.

The widths are those of the usual terminals, 80 and 200 columns; what may stand in a name is taken
from ECMA-48 (escape sequences) and UAX #9 (bidirectional text).
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.top.rows import COLUMNS, WORST, Row, cells, layout, ordered

HEALTHY = Row("540", "train", "0", pid=4000, stage="rollout", step=7, age_seconds=0.2)
HUNG = dataclasses.replace(
    HEALTHY, rank="10", stage="weights_update", age_seconds=412.0, budget_seconds=15.0, overdue=True
)
CULPRIT = dataclasses.replace(HUNG, rank="9", stage="rollout", at_fault=True)
GONE = dataclasses.replace(HEALTHY, rank="2", wait_class="gone")
ROWS = [HEALTHY, GONE, HUNG, CULPRIT]
HOSTILE = "\x1b[31mred\x1b[0m[bold]\u202eevil\u2066\n\t\x07"


def lines(rows: list[Row], width: int) -> list[str]:
    columns = layout(rows, width)
    return [" ".join(cell.text for cell in cells(row, columns)) for row in rows]


def test_those_at_fault_stand_above_those_that_wait_for_them_and_the_dead_below() -> None:
    assert [row.rank for row in ordered(ROWS, WORST)] == ["9", "10", "0", "2"]


def test_ranks_are_sorted_as_numbers() -> None:
    rank = next(column for column in COLUMNS if column.title == "RANK")
    assert [row.rank for row in ordered(ROWS, rank)] == ["0", "2", "9", "10"]


@pytest.mark.parametrize("width", [80, 200])
def test_every_line_of_a_usual_terminal_tells_stage_step_progress_class_and_cpu(width: int) -> None:
    titles = {column.title for column, _ in layout(ROWS, width)}
    assert titles >= {"RANK", "STAGE", "STEP", "STEPS", "PROGRESS", "CLASS", "CPU"}
    assert {len(line) for line in lines(ROWS, width)} <= set(range(width + 1))


def test_the_jobs_are_told_apart_where_there_are_several() -> None:
    two = [HEALTHY, dataclasses.replace(HEALTHY, job_id="541")]
    assert "JOB" in {column.title for column, _ in layout(two, 80)}
    assert "JOB" not in {column.title for column, _ in layout(ROWS, 80)}


@given(text=st.text() | st.just(HOSTILE), width=st.integers(20, 240))
def test_no_name_breaks_out_of_its_column(text: str, width: int) -> None:
    row = dataclasses.replace(
        HUNG, job_id=text, role=text, rank=text, node=text, stage=text, substage=text,
        wait_class=text, wait_channel=text, state=text, inside=text,
    )  # fmt: skip
    columns = layout([row, HEALTHY], width)
    for cell, (_, wide) in zip(cells(row, columns), columns, strict=True):
        assert len(cell.text) == wide
        assert cell.text.isprintable()
