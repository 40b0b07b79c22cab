"""When a rank without progress counts as stalled: every threshold of the verdict and the story.

The recording rules in `alerts/stalls.rules.yaml` have the same: tests/alerts/test_stall_rules.py
gives both of them cases just under and just over each threshold.
"""

from __future__ import annotations

from stagewatch.ranks.records import RankRecord
from stagewatch.record import BUCKET_BOUNDS

MIN_SECONDS = 10.0
"""No rank is overdue before this, whatever its stage."""
FACTOR = 3.0
"""The budget of a stage, in 99th percentiles of the gaps between its marks of progress."""
MIN_GAPS = 3
"""A stage is armed once its rank has shown this many gaps."""
PATIENCE_SECONDS = {"init": 1800.0, "checkpoint": 900.0, "eval": 1800.0}
"""The least budget of a stage that is long by nature."""
COMPUTING_SECONDS = 900.0
"""How long a rank may visibly compute (compile, tokenize) without a mark of progress."""
SETTLE_SECONDS = 5.0
"""How long progress after an exception may still belong to it: the exception closes the stages
around it, and an agent looks once a second.  The rule role:rl_given_up:ranks allows as long."""


def budget_seconds(record: RankRecord, stage: str) -> tuple[float, bool]:
    """The budget of a stage, and whether this rank's own gaps have taught it."""
    patience = max(PATIENCE_SECONDS.get(stage, 0.0), MIN_SECONDS)
    totals = record.totals.get(stage)
    if totals is None or sum(totals.gaps) < MIN_GAPS:
        return patience, False
    return max(FACTOR * _quantile(totals.gaps, 0.99), patience), True


def _quantile(counts: tuple[int, ...], share: float) -> float:
    """As PromQL's `histogram_quantile`: linear within the bucket, the last bound beyond it."""
    wanted = share * sum(counts)
    below, lower = 0, 0.0
    for bound, count in zip(BUCKET_BOUNDS, counts, strict=False):
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return BUCKET_BOUNDS[-1]
