"""Which jobs are slow as a whole: a step takes longer than in the job's own best hours, or than in
earlier runs of it.

The time of a step is the time that ranks spend in stages of the loop, as a mean of an hour and of
the ranks, divided by the steps of that hour (`alerts/slow-jobs.rules.yaml`).  Its parts are work
and waiting by stage (docs/slow-ranks.md).  Waiting for batches of data is included in the work of a
stage, and waiting for the device in its waiting; both are also shown by themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stagewatch.judgement.from_prometheus import Queries, matchers_of
from stagewatch.judgement.slow import Role, role_of
from stagewatch.judgement.witnesses import ROLE
from stagewatch.prometheus.api import Series
from stagewatch.prometheus.selectors import Not, matchers

LOOK_SECONDS = 60.0
"""The time between two looks: the mean of an hour does not change faster."""
BEST_SHARE, BEST_SECONDS = 0.1, 86400.0
"""The best tenth of the hours of a day show what the job can do."""
SLOW_RATIO, END_STEPS = 1.2, 2.0
"""A job is slow if its steps take so many times as long; the limit is higher by so many steps of
the hour, as one step may be cut at each end of it."""
EARLIER_SECONDS, EARLIER_RUNS, EARLIER_SPREAD = 14 * 86400.0, 3, 1.2
"""How old earlier runs may be (Prometheus drops its data after 15 days), how many there must be,
and the largest ratio of their upper to their lower quartile: runs that differ more tell nothing."""
EARLIER_LOOK_SECONDS = 600.0
"""The time between two looks at earlier runs."""
CAUSE_SHARE = 0.5
"""A part of a step is the cause if more than this share of the lost time went to it."""
SLOW_RANK_SECONDS = 3600.0
"""A job with a rank that was slow so lately has `SlowRank`, and gets no alert of its own."""

BEST_HOURS, EARLIER = "best_hours", "earlier_runs"
WORDS = {
    "data": "Waiting for data makes up %s of the growth.",
    "device": "Waiting for devices makes up %s of the growth.",
    "waiting": "Waiting in collectives makes up %s of the growth.",
    "work": "Work in STAGE makes up %s of the growth.",
}
"""Sentences about the causes, with `%s` for a share, as `printf` of Python and of alerts has it."""

Parts = Mapping[tuple[str, str], float]
"""Seconds of a step by stage and part (`work`, `waiting`, `data` or `device`)."""


class Kind(NamedTuple):
    """A kind of run: only runs of the same kind are compared."""

    cluster: str
    role: str
    job_name: str
    uid: str
    ranks: str


@dataclass(frozen=True, slots=True)
class Hour:
    """The last hour of a role of a job."""

    step_seconds: float
    steps: float
    growth: float = 1.0
    """The growth of a step's work by longer sequences, where tokens are counted; a ratio."""
    best_seconds: float | None = None
    """The time of a step in the best tenth of the job's hours."""
    earlier_seconds: float | None = None
    """The time of a step in earlier runs."""


@dataclass(frozen=True, slots=True)
class Slow:
    """A job that is slow as a whole."""

    ratio: float
    beside: str
    """The reference: `best_hours` or `earlier_runs`."""
    lost_seconds: float
    """How much longer a step takes."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A part of a step that took most of the lost time."""

    cause: str
    stage: str
    share: float

    @property
    def words(self) -> str:
        """The sentence, with `%s` for the share."""
        return WORDS[self.cause].replace("STAGE", self.stage)


def slow_job(hour: Hour) -> Slow | None:
    """How slow the job is, if it is: compared with its own best hours first, then with earlier
    runs."""
    limit = (SLOW_RATIO + END_STEPS / hour.steps) * hour.growth
    for beside, seconds in ((BEST_HOURS, hour.best_seconds), (EARLIER, hour.earlier_seconds)):
        if seconds and hour.step_seconds / seconds > limit:
            return Slow(hour.step_seconds / seconds, beside, hour.step_seconds - seconds)
    return None


def usual(runs: Collection[float]) -> float | None:
    """The median step time of earlier runs in seconds; None if they are few or differ much."""
    if len(runs) < EARLIER_RUNS:
        return None
    lower, middle, upper = (quantile(share, runs) for share in (0.25, 0.5, 0.75))
    return middle if upper <= EARLIER_SPREAD * lower else None


def causes(lost: Parts, lost_seconds: float) -> list[Cause]:
    """The parts of a step that took most of the lost time.

    Waiting for data is included in work, and waiting for the device in waiting."""
    if lost_seconds <= 0:
        return []
    sums: defaultdict[str, float] = defaultdict(float)
    for (_, part), seconds in lost.items():
        sums[part] += seconds
    sums["waiting"] -= sums["device"]
    found = [
        Cause(part, "", sums[part] / lost_seconds)
        for part in ("data", "device", "waiting")
        if sums[part] / lost_seconds > CAUSE_SHARE
    ]
    if not any(one.cause == "data" for one in found):
        found += [
            Cause("work", stage, seconds / lost_seconds)
            for (stage, part), seconds in lost.items()
            if part == "work" and seconds / lost_seconds > CAUSE_SHARE
        ]
    return found


def quantile(share: float, values: Collection[float]) -> float:
    """A quantile as PromQL has it: linear between the two nearest values."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True, slots=True)
class JobsLook:
    """The result of one look at all jobs."""

    slow: Mapping[Role, Slow] = field(default_factory=dict)
    causes: Mapping[Role, Sequence[Cause]] = field(default_factory=dict)
    lost: Mapping[Role, Parts] = field(default_factory=dict)
    """How many seconds longer the parts of a step take."""
    references: Mapping[tuple[Role, str], float] = field(default_factory=dict)
    """The usual time of a step in seconds, by role and reference (`best_hours`, `earlier_runs`)."""


_TIME = "job_role:rl_step_time:seconds"
_PARTS = "job_role_stage_part:rl_step_time:seconds"
_TOKENS = "job_role:rl_step_tokens:count"
_KIND = "job_role:rl_kind:info"
_ENDED = "run:rl_step_time_ended:seconds"
_ON_KIND = ", ".join(Kind._fields)
_BEST = f"quantile_over_time({BEST_SHARE:g}, SERIES[{BEST_SECONDS:.0f}s])"
# Runs that have ended, without earlier attempts of a job that runs again.
_RUNS = (
    f"last_over_time({_ENDED}{{SOME}}[{EARLIER_SECONDS:.0f}s]) and on ({_ON_KIND}) {_KIND}"
    f" unless on ({ROLE}) job:rl_ranks_live:count"
)


class JobsWatch:
    """The jobs of one Prometheus, minute by minute."""

    def __init__(self, api: Queries) -> None:
        self._api = api
        self._last = 0.0
        self._found = JobsLook()
        self._runs: list[Series] = []
        self._runs_read = 0.0

    def look(self, now: float) -> JobsLook:
        """The slow jobs as of a Unix time.  Raises `SourceError`."""
        if now - self._last >= LOOK_SECONDS - 1:
            self._found = self._look(now)
            self._last = now
        return self._found

    def _look(self, at: float) -> JobsLook:
        kinds = {role_of(one.labels): _kind(one) for one in self._api.query(_KIND, at)}
        if at - self._runs_read >= EARLIER_LOOK_SECONDS:
            self._runs = self._api.query(_RUNS.replace("SOME", 'part=""'), at)
            self._runs_read = at
        runs: defaultdict[Kind, list[float]] = defaultdict(list)
        for one in self._runs:
            runs[_kind(one)].append(one.value)
        hours = self._hours({role: usual(runs[kind]) for role, kind in kinds.items()}, at)
        excused = {
            role_of(one.labels)
            for one in self._api.query(
                f"count by ({ROLE}) (last_over_time(rank:rl_slow:ratio[{SLOW_RANK_SECONDS:.0f}s]))",
                at,
            )
        }
        slow = {
            role: found
            for role, hour in hours.items()
            if role not in excused and (found := slow_job(hour)) is not None
        }
        lost = self._lost(slow, kinds, at)
        return JobsLook(
            slow,
            {role: causes(lost[role], one.lost_seconds) for role, one in slow.items()},
            lost,
            {
                (role, beside): seconds
                for role, hour in hours.items()
                for beside, seconds in (
                    (BEST_HOURS, hour.best_seconds),
                    (EARLIER, hour.earlier_seconds),
                )
                if seconds is not None
            },
        )

    def _hours(self, earlier: Mapping[Role, float | None], at: float) -> dict[Role, Hour]:
        times = self._by_role(_TIME, at)
        steps = self._by_role("job_role:rl_steps_of_hour:count", at)
        growth = self._by_role(f"{_TOKENS} / min_over_time({_TOKENS}[{BEST_SECONDS:.0f}s])", at)
        best = self._by_role(f"{_BEST.replace('SERIES', _TIME)} and {_TIME}", at)
        return {
            role: Hour(
                seconds, steps[role], growth.get(role, 1.0), best.get(role), earlier.get(role)
            )
            for role, seconds in times.items()
            if role in steps
        }

    def _lost(
        self, slow: Mapping[Role, Slow], kinds: Mapping[Role, Kind], at: float
    ) -> dict[Role, Parts]:
        """How many seconds longer the parts of a step take in slow jobs."""
        if not slow:
            return {}
        jobs = matchers_of({(role.cluster, role.job_id) for role in slow})
        now = self._parts(f"{_PARTS}{{{jobs}}}", at)
        before = self._parts(_BEST.replace("SERIES", f"{_PARTS}{{{jobs}}}"), at)
        if any(one.beside == EARLIER for one in slow.values()):
            earlier = self._earlier_parts({kinds[role] for role in slow if role in kinds}, at)
            for role, one in slow.items():
                if one.beside == EARLIER:
                    before[role] = earlier.get(kinds[role], {})
        return {
            role: {
                place: seconds - before[role][place]
                for place, seconds in now.get(role, {}).items()
                if place in before.get(role, {})
            }
            for role in slow
        }

    def _earlier_parts(
        self, kinds: Collection[Kind], at: float
    ) -> dict[Kind, dict[tuple[str, str], float]]:
        """The median time of the parts of a step in earlier runs, in seconds."""
        names = matchers(job_name=sorted({kind.job_name for kind in kinds}), part=Not(""))
        found: defaultdict[Kind, defaultdict[tuple[str, str], list[float]]]
        found = defaultdict(lambda: defaultdict(list))
        for one in self._api.query(_RUNS.replace("SOME", names), at):
            found[_kind(one)][_place(one)].append(one.value)
        return {
            kind: {place: quantile(0.5, values) for place, values in parts.items()}
            for kind, parts in found.items()
        }

    def _parts(self, expression: str, at: float) -> dict[Role, dict[tuple[str, str], float]]:
        found: defaultdict[Role, dict[tuple[str, str], float]] = defaultdict(dict)
        for one in self._api.query(expression, at):
            found[role_of(one.labels)][_place(one)] = one.value
        return found

    def _by_role(self, expression: str, at: float) -> dict[Role, float]:
        return {
            role_of(one.labels): one.value
            for one in self._api.query(expression, at)
            if one.value == one.value
        }


def _kind(one: Series) -> Kind:
    return Kind(*(one.labels.get(name, "") for name in Kind._fields))


def _place(one: Series) -> tuple[str, str]:
    return one.labels.get("stage", ""), one.labels.get("part", "")
