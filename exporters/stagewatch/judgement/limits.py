"""Every number of the judgement: when a rank without progress counts as stalled, and when to wake
somebody.

A site may change those of `Limits`, as options of `[judge]`; the rules read them from the judge's
series `rl_judge_limit_seconds`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.config import PREFIX, fill, option, read_file, resolve, settings_of
from stagewatch.ranks.stages import STEP_AFTER_SECONDS
from stagewatch.record import BUCKET_BOUNDS

MIN_SECONDS = 10.0
"""No rank is overdue before this, whatever its stage."""
UNTAUGHT_SECONDS = 30.0
STILL_SECONDS = 60.0
LONG_STAGES = ("init", "checkpoint", "eval")
"""Stages that are long by nature."""


@dataclass(frozen=True)
class Limits:
    """What a site may change: seconds."""

    taught_seconds: float = option(
        MIN_SECONDS,
        "minimum seconds without progress before a rank is overdue, in a stage whose length the "
        "job has shown",
        flag="--limit-taught-seconds",
    )
    untaught_seconds: float = option(
        UNTAUGHT_SECONDS, "the same in any other stage", flag="--limit-untaught-seconds"
    )
    still_seconds: float = option(
        STILL_SECONDS,
        "the same in init, checkpoint and eval while the rank waits; also how long after that "
        "the job's other roles may wait for it",
        flag="--limit-still-seconds",
    )
    bare_seconds: float = option(
        300.0,
        "how long all ranks of a job without stage records must stand still before a rank that "
        "stands out is named; agents ask the kernel about them after 300 s",
        flag="--limit-bare-seconds",
    )
    init_seconds: float = option(
        1800.0,
        "minimum seconds without progress before a rank is overdue in init, if it does not wait "
        "and the job has not shown how long init takes; also the minimum silence before a page",
        flag="--limit-init-seconds",
    )
    checkpoint_seconds: float = option(
        900.0, "the same in checkpoint", flag="--limit-checkpoint-seconds"
    )
    eval_seconds: float = option(1800.0, "the same in eval", flag="--limit-eval-seconds")
    page_seconds: float = option(60.0, "minimum silence before a page", flag="--limit-page-seconds")
    young_seconds: float = option(
        180.0,
        "the same in a young job, and if nobody is surely at fault; also how long beyond its "
        "budget a working rank of a young job is not accused",
        flag="--limit-young-seconds",
    )
    working_seconds: float = option(
        900.0,
        "minimum silence before a page while the suspect is at work",
        flag="--limit-working-seconds",
    )
    untaught_busy_seconds: float = option(
        600.0,
        "minimum silence before a page while the suspect keeps a core busy in a stage whose length "
        "the job has not shown, or repeats a request that is answered",
        flag="--limit-untaught-busy-seconds",
    )

    def long(self, stage: str | None) -> float | None:
        """The least budget of a stage that is long by nature, while its rank does not wait and the
        job has not shown how long it takes."""
        return {
            "init": self.init_seconds,
            "checkpoint": self.checkpoint_seconds,
            "eval": self.eval_seconds,
        }.get(stage or "")


DEFAULT = Limits()


def site_limits(arguments: argparse.Namespace) -> Limits:
    """The limits that `[judge]` of the configuration file and its variables set.

    Raises `ConfigError`.
    """
    settings = tuple(settings_of(Limits, env=f"{PREFIX}JUDGE_"))
    file = Path(arguments.config) if getattr(arguments, "config", None) else None
    known = {setting.key for setting in settings}
    table = read_file(file, "judge") if file else {}
    values = resolve(
        settings,
        flags={},
        environ={name: value for name, value in os.environ.items() if value},
        file={key: value for key, value in table.items() if key in known},
        where=f"{file} [judge]",
    )
    return fill(Limits, values)


FACTOR = 3.0
"""The budget of a stage, in 99th percentiles of the gaps between its marks of progress ..."""
RECENT_FACTOR = 1.5
"""... or in the longest gap of the last days, whichever gives more."""
MIN_GAPS = 3
"""A stage is taught once it has shown this many gaps for each live rank."""
WORKING_SECONDS = 60.0
"""How long after its budget a rank at work is left alone, and one that makes marks of progress
after the budgets of those that wait for it."""
YOUNG_GAPS = 10
"""A job is young while it has shown fewer gaps than these for each live rank: the first steps hold
compilers and loaders."""
YOUNGER_SECONDS = 60.0
"""A record begun so long after the median of its peers is of another life than theirs."""
STEPLESS_SECONDS = STEP_AFTER_SECONDS
"""A rank that makes marks at the same step for so long makes no progress with them ..."""
MARKING_SECONDS = 20.0
"""... once it has made them for so long: a time-out that ends a stage is a mark, too."""
LATER_SECONDS = 5.0
"""How much later than those of the others they must be: nodes are not looked at at one moment."""
EARLY_SECONDS = 30.0
"""How long all ranks of a role must have been overdue, in a job of several roles, before weak
evidence counts: another role may show better evidence until then."""
ASKING_SECONDS = 15.0
"""How long all ranks of a role must have been overdue before those are named that others wait for:
the kernel is asked meanwhile whether they wait themselves."""
ABSENT_SECONDS = 30.0
"""How long a rank must have been absent before the others are said to wait for it."""
RETRIES_SECONDS = 60.0
"""How long a role must have been at one step, with marks of progress, before it alone is what all
others wait for."""
LEFT_BEFORE_SECONDS = 60.0
"""How long before the last progress of all others a role may have left that they wait for."""
REMEMBERED_SECONDS = 900.0
"""How long a rank that has left is remembered."""
SETTLE_SECONDS = 5.0
"""How long progress after an exception may still belong to it: the exception closes the stages
around it, and an agent looks once a second."""
DYING_SECONDS = 10.0
"""For so long after a rank has died nobody is named: where a whole job ends, the agents of its
nodes do not see it at the same moment."""
LASTING_SECONDS = 30.0
"""How long a suspicion must last without a break before somebody is woken."""
RECOVERED_FACTOR = 1.5
"""Nobody is woken before so many times the longest pause that the job has recovered from ..."""
RECOVERED_SECONDS = 3600.0
"""... but after so long at the latest."""
SUSPENDED_SECONDS = 30.0
"""A job whose ranks were all stopped is left alone for so long afterwards, and for the longest
budget of its ranks."""
SPURT_SECONDS = 30.0
"""A rank that was at work so lately still is: on a node whose cores are taken by others, work comes
in spurts."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What all ranks of a role have shown of a stage: the gaps between marks of progress."""

    gaps: int = 0
    """How many."""
    p99_seconds: float = 0.0
    longest_seconds: float = 0.0
    recent_seconds: float = 0.0
    """The longest of the last days, which fades."""

    def taught(self, ranks: int) -> bool:
        """Whether that is enough to learn from, in a role of so many live ranks."""
        return self.gaps >= MIN_GAPS * ranks


NOTHING_SHOWN = Shown()
Stages = Mapping[str, Shown]
"""What a role has shown, by stage."""


def budget_seconds(
    shown: Stages, stage: str, *, still: bool, ranks: int = 1, limits: Limits = DEFAULT
) -> float:
    """How long a stage may go without a mark of progress.

    `shown`: what so many live ranks of a role have shown together.
    `still`: the rank waits or is inside a collective, so that nothing speaks for long work.
    """
    mine = shown.get(stage, NOTHING_SHOWN)
    taught = mine.taught(ranks)
    if taught:
        asked = max(RECENT_FACTOR * mine.recent_seconds, FACTOR * mine.p99_seconds)
    else:
        asked = RECENT_FACTOR * mine.longest_seconds
    long = limits.long(stage)
    if long is None:
        return max(asked, limits.taught_seconds if taught else limits.untaught_seconds)
    return max(asked, limits.still_seconds if still or taught else long)


def quantile(counts: tuple[int, ...], share: float) -> float:
    """As PromQL's `histogram_quantile`: linear within the bucket, the last bound beyond it.

    `counts`: gaps in each bucket of the record (`BUCKET_BOUNDS`, and beyond).
    """
    wanted = share * sum(counts)
    below, lower = 0, 0.0
    for bound, count in zip(BUCKET_BOUNDS, counts, strict=False):
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return BUCKET_BOUNDS[-1]
