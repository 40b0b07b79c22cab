"""The lines of `stagewatch top`: they fit, stand in their order, and no name can break them.

The widths are those of the usual terminals, 80 and 200 columns; what may stand in a name is taken
from ECMA-48 (escape sequences) and UAX #9 (bidirectional text).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.ranks.wait_class import WaitClass
from stagewatch.top.rows import Row, cells, layout, worst_first
from tests.judgement.jobs import job

(HEALTHY,) = job(1, {"stage": "rollout"})
GONE = replace(HEALTHY, rank=2, wait_class=WaitClass.GONE)
HUNG = replace(HEALTHY, rank=10, progress_age_seconds=412.0)
CULPRIT = replace(HUNG, rank=9)
ROWS = [Row(HEALTHY), Row(GONE), Row(HUNG), Row(CULPRIT, at_fault=True)]
HOSTILE = "\x1b[31mred\x1b[0m[bold]\u202eevil\u2066\n\t\x07"


def test_those_at_fault_stand_above_those_that_wait_for_them_and_the_dead_below() -> None:
    assert [row.rank.rank for row in worst_first(ROWS)] == [9, 10, 0, 2]


@pytest.mark.parametrize("width", [80, 200])
def test_every_line_of_a_usual_terminal_tells_stage_step_progress_class_and_cpu(width: int) -> None:
    columns = layout(ROWS, width)
    titles = {column.title for column, _ in columns}
    assert titles >= {"RANK", "STAGE", "STEP", "STEPS", "PROGRESS", "CLASS", "CPU"}
    lines = [" ".join(cell.text for cell in cells(row, columns)) for row in ROWS]
    assert all(len(line) <= width for line in lines)


def test_the_jobs_are_told_apart_where_there_are_several() -> None:
    two = [Row(HEALTHY), Row(replace(HEALTHY, job_id="541"))]
    assert "JOB" in {column.title for column, _ in layout(two, 80)}
    assert "JOB" not in {column.title for column, _ in layout(ROWS, 80)}


@given(text=st.text() | st.just(HOSTILE), width=st.integers(20, 240))
def test_no_name_breaks_out_of_its_column(text: str, width: int) -> None:
    rank = replace(
        HUNG, job_id=text, role=text, stage=text, substage=text, wait_channel=text, state=text,
        first_failure=text,
    )  # fmt: skip
    row = Row(rank)
    columns = layout([row, Row(HEALTHY)], width)
    for cell, (_, wide) in zip(cells(row, columns), columns, strict=True):
        assert len(cell.text) == wide
        assert cell.text.isprintable()
