"""How long a stage may go without a mark of progress."""

from __future__ import annotations

import dataclasses

import pytest

from stagewatch.assets import assets
from stagewatch.ranks.records import RankRecord, StageTotals, parse
from stagewatch.record import BUCKETS
from stagewatch.verdict.thresholds import (
    MIN_SECONDS,
    PATIENCE_SECONDS,
    budget_seconds,
)
from tests.records import real_record


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RankRecord:
    return parse(real_record(tmp_path_factory.mktemp("ranks")))


def taught(record: RankRecord, stage: str, *gaps: int) -> RankRecord:
    """A record whose stage has shown so many gaps, by bucket."""
    counts = tuple(gaps) + (0,) * (BUCKETS - len(gaps))
    totals = StageTotals((0,) * BUCKETS, 0.0, counts, 0.0)
    return dataclasses.replace(record, totals={stage: totals})


def test_a_stage_that_was_never_seen_has_the_least_budget(record: RankRecord) -> None:
    assert budget_seconds(taught(record, "train"), "train") == (MIN_SECONDS, False)
    assert budget_seconds(taught(record, "train"), "rollout") == (MIN_SECONDS, False)
    assert budget_seconds(taught(record, "train"), "checkpoint") == (900.0, False)


def test_a_stage_is_armed_after_three_gaps(record: RankRecord) -> None:
    assert budget_seconds(taught(record, "train", 2), "train") == (MIN_SECONDS, False)
    assert budget_seconds(taught(record, "train", 3), "train") == (MIN_SECONDS, True)


def test_a_budget_is_three_times_what_the_stage_has_shown(record: RankRecord) -> None:
    budget, armed = budget_seconds(taught(record, "train", *[0] * 11, 100), "train")
    assert armed
    assert budget == pytest.approx(3 * (16 + 16 * 0.99))


def test_stages_that_are_long_by_nature_are_never_given_less(record: RankRecord) -> None:
    assert budget_seconds(taught(record, "eval", 100), "eval") == (1800.0, True)
    budget, _ = budget_seconds(taught(record, "checkpoint", *[0] * 16, 100), "checkpoint")
    assert budget > 900


def test_gaps_beyond_the_last_bound_count_as_that(record: RankRecord) -> None:
    budget, _ = budget_seconds(taught(record, "train", *[0] * 19, 10), "train")
    assert budget == 3 * 4096


def test_the_rules_comment_holds_the_same_numbers() -> None:
    comment = (assets("alerts") / "stalls.rules.yaml").read_text().partition("groups:")[0]
    for number in (MIN_SECONDS, *PATIENCE_SECONDS.values()):
        assert f"{number:g}" in comment
