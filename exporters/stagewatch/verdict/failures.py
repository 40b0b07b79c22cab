"""What the exceptions that ranks have recorded say of a job."""

from __future__ import annotations

from stagewatch.verdict.budget import MIN_SECONDS
from stagewatch.verdict.facts import RankFacts
from stagewatch.verdict.words import Ranks, age, doing, span, step, who

SETTLE_SECONDS = 5.0
"""An exception closes the stages around it and an agent looks once a second, so that progress
within this time is still its own.  The rule role:rl_given_up:ranks allows it as long."""


def silent(live: Ranks) -> bool:
    """Whether every rank is overdue, or is idle and not just between two steps."""
    return bool(live) and all(map(_is_silent, live))


def failed(ranks: Ranks) -> bool:
    """Whether nobody has completed anything since the last rank that raised did so."""
    raised = [rank.first_failure_age_seconds for rank in ranks]
    last = min((seconds for seconds in raised if seconds is not None), default=None)
    moved = [rank.progress_age_seconds for rank in ranks]
    since = min((seconds for seconds in moved if seconds is not None), default=None)
    return last is not None and since is not None and since >= last - SETTLE_SECONDS


def first_failure(ranks: Ranks) -> str:
    """Who raised first, what, where and when; empty if nobody did."""
    raised = _raised(ranks)
    if not raised:
        return ""
    first = raised[0]
    return (
        f"{who((first,))}, {first.first_failure}, {span(first.first_failure_age_seconds or 0.0)} "
        "ago"
    )


def stopped(ranks: Ranks, live: Ranks) -> str:
    """What is said of ranks that do nothing any more since some of them raised."""
    count = len(_raised(ranks))
    raised = f"{count} of {len(ranks)} ranks raised an exception, first"
    if count == 1:
        raised = "an exception was raised by"
    none = "none has" if len(live) > 1 else "it has not"
    return (
        f"stopped at step {step(live)}: {raised} {first_failure(ranks)}; {doing(live)}, and "
        f"{none} completed anything for {span(age(live))}"
    )


def _raised(ranks: Ranks) -> list[RankFacts]:
    """The first to raise first; what follows is usually its consequence."""
    raised = [rank for rank in ranks if rank.first_failure_age_seconds is not None]
    return sorted(raised, key=lambda rank: rank.first_failure_time or 0.0)


def _is_silent(rank: RankFacts) -> bool:
    idle = rank.stage == "idle" and (rank.progress_age_seconds or 0.0) >= MIN_SECONDS
    return idle or rank.overdue
