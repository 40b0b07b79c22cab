"""The last duration of a stage, from totals that only grow."""

from __future__ import annotations

import dataclasses

from stagewatch.core.exposition import Samples
from stagewatch.ranks.records import RankRecord, StageTotals
from stagewatch.ranks.stages import COMPLETED_AGE, COMPLETIONS, LAST, LastDurations
from stagewatch.record import BUCKETS

KEY = ("540", "train", "3", "train")
ROLE_STAGE = ("540", "train", "train")


def after(record: RankRecord, count: int, seconds: float) -> RankRecord:
    counts = (count,) + (0,) * (BUCKETS - 1)
    totals = StageTotals(counts, seconds, (0,) * BUCKETS, 0.0)
    return dataclasses.replace(record, totals={"train": totals})


def look(durations: LastDurations, record: RankRecord) -> tuple[float | None, float | None]:
    out = Samples()
    durations.add(out, [record], 100.0)
    return out.value(LAST, *KEY), out.value(COMPLETIONS, *ROLE_STAGE)


def test_the_last_one_counts_and_not_the_mean_of_all(record: RankRecord) -> None:
    durations = LastDurations()
    assert look(durations, after(record, 1, 180.0)) == (180.0, 1)
    assert look(durations, after(record, 2, 182.0)) == (2.0, 2)
    assert look(durations, after(record, 2, 182.0)) == (2.0, 2)
    assert look(durations, after(record, 4, 190.0)) == (4.0, 4)


def age(durations: LastDurations, record: RankRecord, now: float) -> float | None:
    out = Samples()
    durations.add(out, [record], now)
    return out.value(COMPLETED_AGE, *ROLE_STAGE)


def test_when_a_stage_was_last_completed_is_known_once_it_was_seen(record: RankRecord) -> None:
    """An agent that starts while a rank trains has not seen it, and does not guess."""
    durations = LastDurations()
    assert age(durations, after(record, 5, 50.0), 100.0) is None
    assert age(durations, after(record, 5, 50.0), 101.0) is None
    assert age(durations, after(record, 6, 60.0), 110.0) == 0
    assert age(durations, after(record, 6, 60.0), 117.0) == 7
    assert age(durations, after(record, 7, 60.0), 120.0) == 0
