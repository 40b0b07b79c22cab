"""How long a stage may go without a mark of progress.

The recording rules in `alerts/stalls.rules.yaml` mean the same: tests/alerts/test_stall_rules.py
gives cases on either side of each threshold to both.
"""

from __future__ import annotations

from stagewatch.ranks.records import RankRecord
from stagewatch.record import BUCKET_BOUNDS

MIN_SECONDS = 10.0
"""No stall is called before this."""
FACTOR = 3.0
"""Times the 99th percentile of the gaps seen."""
MIN_GAPS = 3
"""A stage is armed once a rank has shown this many gaps."""
PATIENCE_SECONDS = {"init": 1800.0, "checkpoint": 900.0, "eval": 1800.0}
"""For stages that are long by nature: never less than this."""
COMPUTING_SECONDS = 900.0
"""How long a rank may visibly compute (compile, tokenize) without a mark of progress."""


def budget_seconds(record: RankRecord, stage: str) -> tuple[float, bool]:
    """The budget of a stage, and whether it was learnt from this rank's own gaps."""
    patience = max(PATIENCE_SECONDS.get(stage, 0.0), MIN_SECONDS)
    totals = record.totals.get(stage)
    if totals is None or sum(totals.gaps) < MIN_GAPS:
        return patience, False
    return max(FACTOR * _quantile(totals.gaps, 0.99), patience), True


def _quantile(counts: tuple[int, ...], share: float) -> float:
    """As PromQL's `histogram_quantile`: linear within the bucket, the last bound beyond it."""
    wanted = share * sum(counts)
    below = 0
    lower = 0.0
    for bound, count in zip(BUCKET_BOUNDS, counts, strict=False):
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return BUCKET_BOUNDS[-1]
