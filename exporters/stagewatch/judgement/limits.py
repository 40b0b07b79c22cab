"""When a rank without progress counts as stalled: every threshold of the verdict and the story.

The recording rules in `alerts/stalls.rules.yaml` have the same: tests/alerts/test_stall_rules.py
gives both of them cases just under and just over each threshold.
"""

from __future__ import annotations

from collections.abc import Mapping

from stagewatch.ranks.records import StageTotals
from stagewatch.ranks.stages import STEP_AFTER_SECONDS
from stagewatch.record import BUCKET_BOUNDS

MIN_SECONDS = 10.0
"""No rank is overdue before this, whatever its stage."""
UNTAUGHT_SECONDS = 30.0
"""The least budget of a stage that has shown too few gaps."""
STILL_SECONDS = 60.0
"""The least budget of a stage that is long by nature, while the rank is still; how long one wait
for storage may last before the rank counts as still; and how long after its budget there the job's
other roles may wait for it."""
PATIENCE_SECONDS = {"init": 1800.0, "checkpoint": 900.0, "eval": 1800.0}
"""The least budget of a stage that is long by nature, while the rank is not."""
FACTOR = 3.0
"""The budget of a stage, in 99th percentiles of the gaps between its marks of progress ..."""
RECENT_FACTOR = 1.5
"""... or in the longest gap of the last days, whichever gives more."""
MIN_GAPS = 3
"""A stage is taught once it has shown this many gaps for each live rank."""
WORKING_SECONDS = 60.0
"""How long after its budget a rank at work is left alone, and one that makes marks of progress
after the budgets of those that wait for it."""
YOUNG_SECONDS = 180.0
"""The same for a rank at work, while its job has shown fewer gaps than these for each live rank:
the first steps hold compilers and loaders."""
YOUNG_GAPS = 10
YOUNGER_SECONDS = 60.0
"""A record begun so long after the median of its peers is of another life than theirs."""
STEPLESS_SECONDS = STEP_AFTER_SECONDS
"""A rank that makes marks at the same step for so long makes no progress with them."""
LATER_SECONDS = 5.0
"""How much later than those of the others they must be: nodes are not looked at at one moment."""
EARLY_SECONDS = 30.0
"""How long all ranks of a role must have been overdue, in a job of several roles, before weak
evidence counts: another role may show better evidence until then."""
ABSENT_SECONDS = 35.0
"""How long a rank must have been absent before the others are said to wait for it: the rules ask
for more than 30 s, and look every five."""
RETRIES_SECONDS = 60.0
"""How long a role must have been at one step, with marks of progress, before it alone is what all
others wait for."""
LEFT_BEFORE_SECONDS = 60.0
"""How long before the last progress of all others a role may have left that they wait for."""
REMEMBERED_SECONDS = 900.0
"""How long a rank that has left is remembered."""
SETTLE_SECONDS = 5.0
"""How long progress after an exception may still belong to it: the exception closes the stages
around it, and an agent looks once a second.  The rule role:rl_given_up:ranks allows as long."""

_NOTHING = StageTotals((), 0.0, (), 0.0)


def budget_seconds(
    shown: Mapping[str, StageTotals], stage: str, *, still: bool, ranks: int = 1
) -> float:
    """How long a stage may go without a mark of progress, as far as gaps have taught.

    `shown`: what so many live ranks of a role have shown together, by stage.
    `still`: the rank waits or is inside a collective, so that nothing speaks for long work.
    """
    totals = shown.get(stage, _NOTHING)
    taught = sum(totals.gaps) >= MIN_GAPS * ranks
    if taught:
        asked = max(RECENT_FACTOR * totals.recent_gap, FACTOR * _quantile(totals.gaps, 0.99))
    else:
        asked = RECENT_FACTOR * totals.longest_gap
    if stage not in PATIENCE_SECONDS:
        return max(asked, MIN_SECONDS if taught else UNTAUGHT_SECONDS)
    return max(asked, STILL_SECONDS if still else PATIENCE_SECONDS[stage])


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
