"""How often each rank has completed a stage, and how long it took the last time, which is told
from what its totals grew by."""

from __future__ import annotations

from stagewatch.core.exposition import Metric, Samples
from stagewatch.ranks.rank_record import RankRecord

LAST = Metric(
    "rl_rank_stage_last_seconds",
    "gauge",
    "How long the rank took for the stage when it last completed it; the mean of those it "
    "completed since the look before, if there were several.",
    ("job_id", "role", "rank", "stage"),
)
COMPLETIONS = Metric(
    "rl_rank_stage_completions_total",
    "counter",
    "How often the rank has completed the stage: one that is behind its peers has done so less.",
    ("job_id", "role", "rank", "stage"),
)
COMPLETED_AGE = Metric(
    "rl_rank_stage_completed_age_seconds",
    "gauge",
    "Time since the rank last completed the stage, as far as the agent saw it: whoever "
    "of its peers has begun the stage since then is not behind it.",
    ("job_id", "role", "rank", "stage"),
)

_Known = tuple[int, float, float, float | None]
"""Completions, seconds of all, seconds of the last, when that was seen."""
_NEVER: _Known = 0, 0.0, 0.0, None


class LastDurations:
    """The last duration of every stage of every rank with a record."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, _Known]] = {}

    def add(self, out: Samples, records: list[RankRecord], now: float) -> None:
        """Look at the records of all ranks that are there, at a time of the clock that counts
        suspend; others are forgotten."""
        known: dict[str, dict[str, _Known]] = {}
        for record in records:
            before = self._known.get(record.name)
            known[record.name] = stages = {}
            for stage, totals in record.totals.items():
                count, seconds = sum(totals.durations), totals.duration_seconds
                old_count, old_seconds, last, when = (before or {}).get(stage, _NEVER)
                if count > old_count:
                    last = max(0.0, seconds - old_seconds) / (count - old_count)
                    when = None if before is None else now
                stages[stage] = count, seconds, last, when
                if count:
                    key = (record.job_id, record.role, record.rank, stage)
                    out.add(LAST, last, *key)
                    out.add(COMPLETIONS, count, *key)
                    out.add(COMPLETED_AGE, None if when is None else now - when, *key)
        self._known = known
