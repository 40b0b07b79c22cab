"""The table of ranks as a person sees it."""

from __future__ import annotations

from stagewatch.inspect.table import table
from stagewatch.judgement.judge import judge
from tests.judgement.jobs import PARKED, SPINNING, job


def test_the_table_marks_who_is_overdue_and_colours_who_is_named() -> None:
    ranks = job(4, SPINNING, rank_1=PARKED | {"stage": "other", "substage": "wait"})
    plain = table(ranks, judge(ranks), colour=False)
    assert plain.splitlines()[:3] == [
        "JOB  ROLE   RANK   PID  STAGE       OPEN  STEP  PROGRESS  S  WCHAN           CPU  CLASS",
        "540  train     0  4000  train       2.0s   220  6min52s!  R  -              100%  spin",
        "540  train     1  4001  other/wait  2.0s   220  6min52s!  S  futex_do_wait    0%  parked",
    ]
    assert "! no progress for longer than the stage may take" in plain.splitlines()
    coloured = table(ranks, judge(ranks), colour=True).splitlines()
    assert coloured[0].startswith("\033[1mJOB")
    assert [line.startswith("\033[31m") for line in coloured[1:5]] == [False, True, False, False]
    assert coloured[-1].startswith("\033[1m\033[31mjob 540")
