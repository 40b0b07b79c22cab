"""Every number of the judgement: when a rank without progress counts as stalled, and when to wake
somebody.

A site may change the numbers of `Limits`, as options of `[judge]`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
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


_limit = partial(option, flag="--limit-{}")


@dataclass(frozen=True)
class Limits:
    """The limits that a site may change, in seconds."""

    taught_seconds: float = _limit(
        MIN_SECONDS,
        "minimum seconds without progress before a rank is overdue, in a stage whose length the "
        "job has shown",
    )
    untaught_seconds: float = _limit(UNTAUGHT_SECONDS, "the same in any other stage")
    still_seconds: float = _limit(
        STILL_SECONDS,
        "the same in init, checkpoint and eval while the rank waits; also how long after that "
        "the job's other roles may wait for it",
    )
    bare_seconds: float = _limit(
        300.0,
        "how long all ranks of a job without stage records must stand still before a rank that "
        "stands out is named; agents ask the kernel about them after 300 s",
    )
    init_seconds: float = _limit(
        1800.0,
        "minimum seconds without progress before a rank is overdue in init, if it does not wait "
        "and the job has not shown how long init takes; also the minimum silence before a page",
    )
    checkpoint_seconds: float = _limit(900.0, "the same in checkpoint")
    eval_seconds: float = _limit(1800.0, "the same in eval")
    page_seconds: float = _limit(60.0, "minimum silence before a page")
    young_seconds: float = _limit(
        180.0,
        "the same in a young job, and if nobody is surely at fault; also how long beyond its "
        "budget a working rank of a young job is not accused",
    )
    working_seconds: float = _limit(
        900.0,
        "minimum silence before a page while the rank at fault is at work",
    )
    untaught_busy_seconds: float = _limit(
        600.0,
        "minimum silence before a page while the rank at fault keeps a core busy in a stage whose "
        "length the job has not shown, or repeats a request that is answered",
    )

    def long(self, stage: str | None) -> float | None:
        """The minimum budget of a stage that is long by nature, while its rank does not wait and
        the job has not shown its length; `None` for other stages."""
        return {
            "init": self.init_seconds,
            "checkpoint": self.checkpoint_seconds,
            "eval": self.eval_seconds,
        }.get(stage or "")


DEFAULT = Limits()


def site_limits(arguments: argparse.Namespace) -> Limits:
    """The limits as set by `[judge]` of the configuration file and by variables.

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
"""How long a rank at work may exceed its budget, and how long a rank with marks of progress may
exceed the budgets of those that wait for it."""
YOUNG_GAPS = 10
"""A job is young while it has shown fewer gaps than these for each live rank: the first steps hold
compilers and loaders."""
YOUNGER_SECONDS = 60.0
"""A record that began so long after the median of its peers is of a rank that was started again."""
STEPLESS_SECONDS = STEP_AFTER_SECONDS
"""Marks at the same step for longer than this are no progress ..."""
MARKING_SECONDS = 20.0
"""... once the rank has made them for so long: a timeout that ends a stage is a mark too."""
LATER_SECONDS = 5.0
"""By how much times of two ranks must differ to count: nodes are looked at at different moments."""
EARLY_SECONDS = 30.0
"""How long all ranks of a role must have been overdue, in a job of several roles, before weak
evidence counts, unless the kernel has answered about all: another role may show better evidence
until then."""
ASKING_SECONDS = 30.0
"""How long all ranks of a role must have been overdue before an awaited rank is named: meanwhile
the kernel is asked whether that rank waits itself."""
ABSENT_SECONDS = 30.0
"""How long a rank must have been absent before the others are said to wait for it."""
RETRIES_SECONDS = 60.0
"""How long a role must have made marks at one step before all other roles are said to wait for
it."""
LEFT_BEFORE_SECONDS = 60.0
"""How long before the last progress of the other roles a role may have left that they wait for."""
REMEMBERED_SECONDS = 900.0
"""How long a rank that has left is remembered."""
SETTLE_SECONDS = 5.0
"""How long progress after an exception may still belong to it: the exception closes the stages
around it, and an agent looks once a second."""
DYING_SECONDS = 10.0
"""How long after the death of a rank nobody is named: when a whole job ends, the agents of its
nodes see that at different moments."""
LASTING_SECONDS = 30.0
"""How long a suspicion must last without a break before a page."""
RECOVERED_FACTOR = 1.5
"""There is no page before so many times the longest pause that the job has recovered from ..."""
RECOVERED_SECONDS = 3600.0
"""... but after so long at the latest."""
SUSPENDED_SECONDS = 30.0
"""A job whose ranks were all stopped is left alone for so long afterwards, and for the longest
budget of its ranks."""
SPURT_SECONDS = 30.0
"""A rank that was at work so lately still counts as being so: on a node whose cores others take,
work comes in spurts."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The gaps between marks of progress of all ranks of a role in one stage."""

    gaps: int = 0
    """Their number."""
    p99_seconds: float = 0.0
    longest_seconds: float = 0.0
    recent_seconds: float = 0.0
    """The longest of the last days; it fades."""

    def taught(self, ranks: int) -> bool:
        """Whether there are enough gaps to learn from, for this number of live ranks."""
        return self.gaps >= MIN_GAPS * ranks


NOTHING_SHOWN = Shown()
Stages = Mapping[str, Shown]
"""The gaps of a role by stage."""


def budget_seconds(
    shown: Stages, stage: str, *, still: bool, ranks: int = 1, limits: Limits = DEFAULT
) -> float:
    """How long a stage may go without a mark of progress, in seconds.

    `shown`: the gaps of the role, from `ranks` live ranks.  `still`: the rank waits or is inside a
    collective, so that it does no long work.
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
    """A quantile of the gaps, as PromQL's `histogram_quantile` has it: linear within a bucket, and
    the last bound for the last bucket.

    `counts`: the number of gaps in each bucket, those of `BUCKET_BOUNDS` and one without a bound.
    """
    wanted = share * sum(counts)
    below, lower = 0, 0.0
    for bound, count in zip(BUCKET_BOUNDS, counts, strict=False):
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return BUCKET_BOUNDS[-1]
