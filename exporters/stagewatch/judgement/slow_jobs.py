"""Which jobs are slow as a whole: a step takes longer than in the job's own best hours, or than in
earlier runs of it.

A step's time is what its ranks spend in stages that belong to a step, as a mean of an hour and of
the ranks, over the steps of that hour (`alerts/slow-jobs.rules.yaml`).  Its parts are work and
waiting by stage (docs/slow-ranks.md); waiting for batches of data is a part of some stage's work,
waiting for the device of some stage's waiting, and both are told beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stagewatch.judgement.from_prometheus import Queries
from stagewatch.judgement.slow import Role, role_of
from stagewatch.judgement.witnesses import ROLE
from stagewatch.prometheus.api import Series
from stagewatch.prometheus.selectors import Not, matchers

LOOK_SECONDS = 60.0
"""An hour's mean does not change faster."""
BEST_SHARE, BEST_SECONDS = 0.1, 86400.0
"""The best tenth of the hours of a day are what the job can do."""
SLOW_RATIO, END_STEPS = 1.2, 2.0
"""So many times that, and so many steps of the hour more (one at each end), is slow."""
EARLIER_SECONDS, EARLIER_RUNS, EARLIER_SPREAD = 14 * 86400.0, 3, 1.2
"""For so long earlier runs are kept in mind, as Prometheus drops its data after 15 days; of as many
at least the upper quartile is so many times the lower one at most, as runs that differ tell
nothing."""
EARLIER_LOOK_SECONDS = 600.0
"""From one look at these to the next."""
CAUSE_SHARE = 0.5
"""A part of a step to which more of the lost time went is the cause."""
SLOW_RANK_SECONDS = 3600.0
"""A job with a rank that was slow so lately has `SlowRank`, and gets no alert of its own."""

BEST_HOURS, EARLIER = "best_hours", "earlier_runs"
WORDS = {
    "data": "Waiting for data makes up %s of the growth.",
    "device": "Waiting for devices makes up %s of the growth.",
    "waiting": "Waiting in collectives makes up %s of the growth.",
    "work": "Work in STAGE makes up %s of the growth.",
}
"""What most of the lost time went to, as `printf` has it in Python and in alerts alike."""

Parts = Mapping[tuple[str, str], float]
"""Seconds of a step by stage and part (`work`, `waiting`, `data` or `device`)."""


class Kind(NamedTuple):
    """Runs of one kind are compared with each other."""

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
    """By how much a step's work has grown, where tokens are counted: longer sequences."""
    best_seconds: float | None = None
    """A step of the best tenth of its own hours."""
    earlier_seconds: float | None = None
    """A step of earlier runs."""


@dataclass(frozen=True, slots=True)
class Slow:
    """A job that is slow as a whole."""

    ratio: float
    beside: str
    """What it is compared with: `best_hours` or `earlier_runs`."""
    lost_seconds: float
    """By which a step takes longer."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A part of a step to which most of the lost time went."""

    cause: str
    stage: str
    share: float

    @property
    def words(self) -> str:
        """The sentence, but for the share."""
        return WORDS[self.cause].replace("STAGE", self.stage)


def slow_job(hour: Hour) -> Slow | None:
    """Whether it is slow; rather beside its own best hours than beside earlier runs."""
    limit = (SLOW_RATIO + END_STEPS / hour.steps) * hour.growth
    for beside, seconds in ((BEST_HOURS, hour.best_seconds), (EARLIER, hour.earlier_seconds)):
        if seconds and hour.step_seconds / seconds > limit:
            return Slow(hour.step_seconds / seconds, beside, hour.step_seconds - seconds)
    return None


def usual(runs: Collection[float]) -> float | None:
    """The step time of earlier runs, if they agree enough to compare with."""
    if len(runs) < EARLIER_RUNS:
        return None
    lower, middle, upper = (quantile(share, runs) for share in (0.25, 0.5, 0.75))
    return middle if upper <= EARLIER_SPREAD * lower else None


def causes(lost: Parts, lost_seconds: float) -> list[Cause]:
    """What most of the lost time went to.  Waiting for data is a part of some stage's work, waiting
    for the device of some stage's waiting."""
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
    """As PromQL's: linear between the two nearest."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True, slots=True)
class JobsLook:
    """What one look at all jobs has shown."""

    slow: Mapping[Role, Slow] = field(default_factory=dict)
    causes: Mapping[Role, Sequence[Cause]] = field(default_factory=dict)
    lost: Mapping[Role, Parts] = field(default_factory=dict)
    """Seconds by which the parts of a step take longer."""
    references: Mapping[tuple[Role, str], float] = field(default_factory=dict)
    """What a step should take, by what that is beside."""


_TIME = "job_role:rl_step_time:seconds"
_PARTS = "job_role_stage_part:rl_step_time:seconds"
_TOKENS = "job_role:rl_step_tokens:count"
_KIND = "job_role:rl_kind:info"
_ENDED = "run:rl_step_time_ended:seconds"
_ON_KIND = ", ".join(Kind._fields)
_BEST = f"quantile_over_time({BEST_SHARE:g}, SERIES[{BEST_SECONDS:.0f}s])"
# Not what a job was before it was requeued.
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
        """Which are slow as of a Unix time.  Raises `SourceError`."""
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
        """By how much the parts of a step take longer in these."""
        if not slow:
            return {}
        jobs = matchers(
            cluster=sorted({role.cluster for role in slow}),
            job_id=sorted({role.job_id for role in slow}),
        )
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
        """What the parts of a step have taken in earlier runs, in the median."""
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
