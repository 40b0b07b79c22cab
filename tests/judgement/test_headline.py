"""The sentence that a status page begins with."""

from __future__ import annotations

import time

import pytest

from stagewatch.core.findings import Finding
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.headline import findings_of
from stagewatch.judgement.judge import judge
from stagewatch.ranks.stacks import Stack
from tests.judgement.cases import CASES, stands
from tests.judgement.jobs import LEFT, PARKED, SPINNING, job

NOW = 1_700_000_000.0  # 22:13:20 UTC


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


def findings(ranks: list[RankFacts]) -> list[Finding]:
    return findings_of(judge(ranks), ranks)


def headline(ranks: list[RankFacts]) -> str:
    (one,) = findings(ranks)
    return one.headline


def test_who_left_the_loop_is_told_with_the_stage_and_the_line() -> None:
    at = {"stack": Stack("a" * 8, True, "fit.py:212 in finish")}
    assert headline(job(8, SPINNING, rank_5=LEFT | at)) == (
        "Job 540 has hung since 22:06 UTC: "
        "rank 5 left the loop early, in cleanup, at fit.py:212 in finish."
    )


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (
            "two-have-not-come",
            "the others wait for ranks 2, 5 in all_reduce of world; they are in train",
        ),
        (
            "not-come-and-in-a-call",
            "the others wait for rank 5 in all_reduce of world; it is in train, inside its call of "
            "search for 6 min 40 s",
        ),
        ("all-in-calls", "all its ranks are inside their calls of search for up to 6 min 40 s"),
        ("in-a-stage-of-its-own", "rank 5 alone is in reward"),
        ("a-node-stopped", "ranks 2, 3 alone are stopped by a signal, in train"),
        ("one-gone", "rank 5 ended without closing its record, in train"),
        ("one-left", "rank 5 left, and the others wait for it"),
        (
            "all-others-left",
            "the others have left, and rank 0 still waits in barrier of world, in train",
        ),
        ("all-others-just-left", "its ranks wait for ranks that are not in sight"),
        ("weak-evidence-just-after-one-left", "a rank has just left"),
        (
            "another-size",
            "the all_reduce of rank 3 does not match the others' all_reduce of world, in train",
        ),
        ("all-spin", "no rank stands out; suspect a link, a switch or a GPU"),
    ],
)
def test_every_evidence_reads_as_a_sentence(case: str, expected: str) -> None:
    assert headline(CASES[case].ranks("540")) == f"Job 540 has hung since 22:06 UTC: {expected}."


def test_the_only_rank_of_a_role_is_told_with_what_it_has_called() -> None:
    (told,) = findings(job(1, PARKED | {"calls": {"sandbox": 42.0, "search": 11.0}}))
    assert told.headline.endswith(": its rank is inside its call of sandbox for 42 s.")


def test_the_day_is_told_unless_it_is_today() -> None:
    ages = {"progress_age_seconds": 3 * 86400.0, "budget_seconds": 15.0}
    told = headline(job(8, SPINNING | ages, rank_5=LEFT | ages))
    assert told.startswith("Job 540 has hung since 2023-11-11 22:13 UTC: ")


def test_a_job_of_several_roles_is_told_by_role() -> None:
    ranks = job(4, SPINNING, rank_1=LEFT) + job(4, PARKED, role="rollout")
    assert any(one.headline.startswith("Job 540 (train) has hung") for one in findings(ranks))


def test_what_a_user_wrote_is_cut_and_fit_to_print() -> None:
    long = "\u202e<b>" * 400
    user = {"substage": long, "calls": {long: 400.0}}
    ranks = job(8, SPINNING, rank_5=LEFT | user | stands("b"))
    told = headline(ranks)
    assert len(told) <= 400
    assert "\u202e" not in told
