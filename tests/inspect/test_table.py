"""The table of ranks as a person sees it."""

from __future__ import annotations

import pytest

from stagewatch.inspect.table import short_channel, table
from stagewatch.judgement.judge import judge
from stagewatch.judgement.words import sleeps_in
from stagewatch.ranks.wait_class import WaitClass
from tests.judgement.jobs import PARKED, SPINNING, job

LONG = "poll_schedule_timeout.constprop.0"


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
    assert coloured[-1].startswith("\033[1;31mjob 540")


def test_what_is_not_known_is_a_dash() -> None:
    unknown = {
        "stage": None,
        "stage_open_seconds": None,
        "step": None,
        "progress_age_seconds": None,
        "cpu_ratio": None,
        "state": "-",
        "wait_class": WaitClass.GONE,
    }
    ranks = job(1, unknown)
    row = table(ranks, judge(ranks), colour=False).splitlines()[1]
    assert row.split() == ["540", "train", "0", "4000", *"------", "-", "gone"]


def test_a_mark_that_nobody_has_is_not_explained() -> None:
    ranks = job(2)
    assert "!" not in table(ranks, judge(ranks), colour=False)


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        ("futex_do_wait", "futex_do_wait"),
        ("do_wait.isra.0", "do_wait"),
        ("pipe_read.part.0.constprop.0", "pipe_read"),
        (LONG, "poll"),
        ("hrtimer_nanosleep", "nanosleep"),
        ("folio_wait_bit_common", "folio_wait_bit_~"),
    ],
)
def test_a_wait_channel_is_shortened_to_what_it_says(channel: str, said: str) -> None:
    assert short_channel(channel) == said


@pytest.mark.parametrize("channel", [LONG, "folio_wait_bit_common", "futex_wait_queue"])
@pytest.mark.parametrize("width", [None, 100, 80])
def test_a_usual_row_fits_the_terminal(channel: str, width: int | None) -> None:
    common = PARKED | {"wait_channel": channel, "stage": "rollout", "step": 12345, "cpu_ratio": 1.0}
    ranks = [*job(1, common | {"pid": 1234567, "rank": 1023}, job_id="540123", role="rollout")]
    lines = table(ranks, judge(ranks), colour=False, width=width).splitlines()[:2]
    assert max(map(len, lines)) <= (width or 100)
    assert lines[1].split()[0] == "540123"
    assert lines[1].split()[-1] == "parked"


@pytest.mark.parametrize(
    ("channel", "expected"),
    [
        ("futex_wait_queue", "futex"),
        ("futex_do_wait", "futex"),
        ("do_epoll_wait", "epoll"),
        ("ep_poll", "poll"),
        ("hrtimer_nanosleep", "nanosleep"),
        ("nfs_wait_client_init_complete", "nfs"),
        ("do_sys_poll", "poll"),
        ("anon_pipe_read", "pipe"),
        ("kernel_clone", "kernel_clone"),
        ("", ""),
    ],
)
def test_wait_channels_are_named_by_class(channel: str, expected: str) -> None:
    assert sleeps_in(channel) == expected
