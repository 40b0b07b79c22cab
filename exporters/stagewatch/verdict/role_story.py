"""What a role of a job is doing, in a sentence or two: hung, stopped, idle, or in progress."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stagewatch.prometheus.api import Series
from stagewatch.verdict.budget import MIN_SECONDS
from stagewatch.verdict.failures import SETTLE_SECONDS

Rank = tuple[str, str]
"""Number and node."""

SHOWN = 6

_DOING = {
    "spin": ("spins", "spin"),
    "compute": ("computes", "compute"),
    "parked": ("is parked", "are parked"),
    "io": ("waits for storage", "wait for storage"),
    "stopped": ("is stopped", "are stopped"),
    "traced": ("is held by a debugger", "are held by a debugger"),
    "gone": ("is gone", "are gone"),
    "unknown": ("is unclear", "are unclear"),
}
_EXCUSES = {
    "computing": "a rank computes something long",
    "debugger": "a debugger holds a rank",
    "long_stage": "a rank is in a stage that may take long",
    "idle": "no stage is open",
}


class Ask(Protocol):
    """The role's series of a metric, or of an expression in which {0} stands for them."""

    def __call__(self, metric: str, form: str = "{0}") -> list[Series]: ...


@dataclass(frozen=True, slots=True)
class RoleStory:
    """The sentences about a role, and whether it is in trouble."""

    sentences: tuple[str, ...]
    wrong: bool
    """It hangs, has stopped after an exception, or has lost a rank."""


class RoleTeller:
    """Tells of one role of one job, at one moment (Unix seconds)."""

    def __init__(self, ask: Ask, ups: Sequence[Series], now: float) -> None:
        """`ups` are the role's `rl_rank_up`."""
        self._now = now
        self._ups = ups
        living = {found.labels["rank"] for found in ups if found.value}
        self._gone = sorted(
            (_rank(found) for found in ups if found.labels["rank"] not in living),
            key=lambda rank: (rank[0].zfill(9), rank[1]),
        )
        self._ages = ask("rank:rl_progress_age:seconds")
        self._stalled = bool(ask("job:rl_stall:active"))
        self._excuses = {found.labels["excuse"] for found in ask("job:rl_stall:excused")}
        self._late = {
            _rank(found)
            for kind in ("armed", "unarmed")
            for found in ask(f"rank:rl_stall_{kind}:overdue_seconds")
        }
        self._failures = sorted(
            ask("rl_rank_first_failure_timestamp_seconds"), key=lambda found: found.value
        )
        # The rules' ages are as old as a scrape: what follows an exception is told by the samples.
        last = ask("rl_rank_progress_age_seconds", "timestamp({0}) - {0}")
        self._last_progress = max((found.value for found in last), default=None)
        self._stages = {
            _rank(found): found.labels["stage"] for found in ask("rl_rank_stage_open_seconds")
        }
        self._classes = ask("rl_rank_wait_class")
        steps = [found.value for found in ask("rl_rank_step")]
        self._step = f" at step {max(steps):.0f}" if steps else ""

    def tell(self, job: str) -> RoleStory:
        """What is known; `job` says which job and role it is."""
        nodes = sorted({node_of(found.labels) for found in self._ups})
        count = f"{len(self._ups)} rank{'s' if len(self._ups) > 1 else ''}"
        on = ", ".join(nodes[:SHOWN]) + (
            f" and {len(nodes) - SHOWN} more nodes" if len(nodes) > SHOWN else ""
        )
        stopped = self._stopped()
        lines = [f"{job}, {count} on {on}: {self._state(stopped)}.", self._doing()]
        excuses = self._excuses & _EXCUSES.keys()
        if excuses and not self._stalled and not stopped:
            whys = " and ".join(_EXCUSES[excuse] for excuse in sorted(excuses))
            lines.append(f"Not called a stall, for {whys}.")
        wrong = stopped or self._stalled or bool(self._gone)
        return RoleStory(tuple(line for line in lines if line), wrong)

    def _stopped(self) -> bool:
        """Whether nobody goes on after an exception or a death: every rank that lives is overdue,
        or is idle and not just between two steps, and nothing was completed since."""
        return (
            bool(self._ages)
            and not self._stalled
            and self._excuses <= {"idle"}
            and all(map(self._silent, self._ages))
            and (bool(self._gone) or self._failed())
        )

    def _silent(self, age: Series) -> bool:
        idle = age.labels.get("stage") == "idle" and age.value >= MIN_SECONDS
        return idle or _rank(age) in self._late

    def _failed(self) -> bool:
        """Whether an exception is the last that is known of the role."""
        if not self._failures or self._last_progress is None:
            return False
        return self._last_progress <= self._failures[-1].value + SETTLE_SECONDS

    def _state(self, stopped: bool) -> str:
        oldest = max((found.value for found in self._ages), default=0.0)
        youngest = min((found.value for found in self._ages), default=0.0)
        if not self._ages:
            ended = f"; it was{self._step}" if self._step else ""
            return "; ".join([f"no rank of it lives{ended}", *self._raised()])
        if self._stalled:
            since = clock(self._now - youngest, self._now)
            return f"no progress since {since} ({long(youngest)}){self._step}"
        if stopped:
            why = [self._lost()] if self._gone else []
            why += self._raised() if self._failed() else []
            other = "no other rank" if self._gone else "no rank"
            why.append(f"{other} has completed anything for {long(youngest)}")
            return f"stopped{self._step}: {', '.join(why[:-1])}, and {why[-1]}"
        if self._gone:
            return (
                f"goes on{self._step} although {self._lost()}; every other rank has moved within "
                f"{long(oldest)}"
            )
        if "idle" in self._excuses and youngest >= MIN_SECONDS:
            return f"idle{self._step}; no rank has completed anything for {long(youngest)}"
        return f"in progress{self._step}; every rank has moved within {long(oldest)}"

    def _lost(self) -> str:
        shown = [f"{rank} on {node}" for rank, node in self._gone[:SHOWN]]
        if len(self._gone) > SHOWN:
            shown.append(f"{len(self._gone) - SHOWN} more")
        if len(self._gone) == 1:
            return f"rank {shown[0]} is gone"
        return f"ranks {', '.join(shown[:-1])} and {shown[-1]} are gone"

    def _raised(self) -> list[str]:
        if not self._failures:
            return []
        first = self._failures[0]
        count = len({_rank(found) for found in self._failures})
        where = f"rank {first.labels['rank']} on {node_of(first.labels)}"
        some = f"{count} of {len(self._ups)} ranks raised an exception, {where} first"
        if count == 1:
            some = f"{where} raised an exception"
        return [f"{some} ({long(self._now - first.value)} ago)"]

    def _doing(self) -> str:
        """How many ranks do what, in which stage."""
        doing = Counter(
            (found.labels["class"], self._stages.get(_rank(found), "?")) for found in self._classes
        )
        parts = [
            f"{count} {_DOING.get(kind, (kind, kind))[count > 1]} in {stage}"
            for (kind, stage), count in doing.most_common(SHOWN)
        ]
        return f"Of them {', '.join(parts)}." if parts else ""


def node_of(labels: dict[str, str]) -> str:
    """Where a series comes from."""
    return labels.get("node") or labels.get("instance") or "an unknown node"


def long(seconds: float) -> str:
    """A time span for a person."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def clock(when: float, now: float) -> str:
    """The local time of day, with the date unless it is today's."""
    today = time.strftime("%F", time.localtime(now))
    return time.strftime("%F %T", time.localtime(when)).removeprefix(f"{today} ")


def _rank(found: Series) -> Rank:
    return found.labels["rank"], node_of(found.labels)
