"""Looks at all jobs of a Prometheus, and judges those in trouble."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from stagewatch.judgement.from_prometheus import (
    STILL,
    SUMS,
    UP,
    Asker,
    JobKey,
    Queries,
    job_key,
    matchers_of,
    rank_key,
    shown_of,
)
from stagewatch.judgement.hardware import Proposal
from stagewatch.judgement.limits import (
    DEFAULT,
    REMEMBERED_SECONDS,
    Limits,
    Shown,
    budget_seconds,
)
from stagewatch.judgement.memory import Course, Moment, State
from stagewatch.prometheus.api import Series
from stagewatch.prometheus.selectors import matchers

SUMS_SECONDS = 15.0
"""How old the sums over gaps may be; the rules record them every 30 s or every minute."""
KEPT_MOMENTS = 8
"""The number of latest moments of a job that its case holds."""
_STEPS = ((REMEMBERED_SECONDS, 60.0, 15.0), (60.0, 0.0, 5.0))
"""The past that a judge goes through at its start: seconds ago from, to, and between looks."""

Role = tuple[JobKey, str]


@dataclass(slots=True)
class Judged:
    """One job in trouble."""

    states: list[State]
    moments: deque[Moment]
    proposals: tuple[Proposal, ...] = ()
    case: Path | None = None
    """The file with its case."""


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look at all jobs."""

    time: float
    jobs: Mapping[JobKey, Judged]
    budgets: Mapping[tuple[Role, str], float]
    """Budgets in seconds by role and stage, of stages whose length the job has shown."""
    blind: frozenset[str] = frozenset()
    """What was missing: `rules` (their sums) or `targets` (agents no longer scraped)."""


@dataclass(slots=True)
class _Sums:
    """The gaps between marks of all roles of all jobs, by stage."""

    time: float = 0.0
    live: dict[Role, int] = field(default_factory=dict)
    shown: dict[Role, dict[str, Shown]] = field(default_factory=dict)

    def budget(self, role: Role, stage: str, limits: Limits, *, still: bool = True) -> float:
        """The budget of a rank of the role in a stage, in seconds."""
        live = self.live.get(role, 1)
        return budget_seconds(
            self.shown.get(role, {}), stage, still=still, ranks=live, limits=limits
        )


class Watch:
    """The jobs of one Prometheus, look by look."""

    def __init__(self, api: Queries, limits: Limits = DEFAULT) -> None:
        self._api = api
        self._limits = limits
        self._asker = Asker(api, limits)
        self._direct = Asker(api, limits, recorded=False)
        self._courses: dict[JobKey, Course] = {}
        self._kept: dict[JobKey, deque[Moment]] = {}
        self._sums = _Sums()
        self._begun = False
        self._watched = False
        """Whether there was an earlier look."""

    def look(self, now: float) -> Look:
        """Judge the jobs in trouble as of a Unix time.

        The first look also goes through the last quarter of an hour of these jobs.  Raises
        `SourceError` if the server does not answer."""
        if not self._begun:
            self._begin(now)
        return self._look(now)

    def _begin(self, now: float) -> None:
        """Go through the past of the jobs that are in trouble now; the past of others does not
        matter."""
        self._courses, self._kept, self._watched = {}, {}, False
        self._sums = self._read_sums(now)
        if troubled := self._troubled(now):
            for at in _before(now):
                self._look(at, troubled)
        self._watched = self._begun = True

    def _look(self, at: float, among: Collection[JobKey] = ()) -> Look:
        """Judge the jobs in trouble; if `among` has jobs, only those of them."""
        if not 0 <= at - self._sums.time < SUMS_SECONDS:
            self._sums = self._read_sums(at)
        lacking = not self._sums.live
        keys = self._troubled(at, among)
        asker = self._direct if lacking else self._asker
        moments = asker.moments(keys, at)
        self._courses = {
            key: self._courses.get(key) or Course(self._limits, watched=self._watched)
            for key in keys
        }
        self._watched = True
        self._kept = {key: self._kept.get(key) or deque(maxlen=KEPT_MOMENTS) for key in keys}
        jobs = {}
        for key, moment in moments.items():
            self._kept[key].append(moment)
            jobs[key] = Judged(self._courses[key].look(moment), self._kept[key])
        blind = {"rules"} if lacking and self._any_ranks(at) else set()
        if asker.blind:
            blind.add("targets")
        return Look(at, jobs, self._budgets(), frozenset(blind))

    def _read_sums(self, at: float) -> _Sums:
        sums = _Sums(at)
        for one in self._api.query("job:rl_ranks_live:count", at):
            sums.live[_role(one)] = int(one.value)
        found: dict[tuple[Role, str], dict[str, float]] = defaultdict(dict)
        names = {record: name for name, record in SUMS.items()}
        for one in self._api.query(f"{{{matchers(__name__=sorted(names))}}}", at):
            if one.value == one.value:  # a quantile of nothing is no number
                place = _role(one), one.labels.get("stage", "")
                found[place][names[one.labels["__name__"]]] = one.value
        for (role, stage), values in found.items():
            sums.shown.setdefault(role, {})[stage] = shown_of(values)
        return sums

    def _budgets(self) -> dict[tuple[Role, str], float]:
        return {
            (role, stage): self._sums.budget(role, stage, self._limits)
            for role, stages in self._sums.shown.items()
            for stage, shown in stages.items()
            if role in self._sums.live and shown.taught(self._sums.live[role])
        }

    def _any_ranks(self, at: float) -> bool:
        return bool(self._api.query("count(rl_rank_up)", at))

    def _troubled(self, at: float, among: Collection[JobKey] = ()) -> list[JobKey]:
        """The jobs in trouble; the judge asks nothing more about other jobs.

        They have a rank that is overdue, dead, stopped, held by a debugger, or in an announced
        pause; or they stand still without marks, and lack ranks or keep no records."""
        of = matchers_of(among) if among else ""
        lives = " and on (cluster, job_id) job:rl_ranks_live:count" if self._sums.live else ""
        plain = self._api.query(
            f"count by (cluster, job_id) (rl_rank_gone{{{of}}}){lives} or count by (cluster,"
            f' job_id) (rl_rank_wait_class{{class=~"traced|stopped"{", " * bool(of)}{of}}})'
            f" or count by (cluster, job_id) (rl_rank_expected_seconds{{{of}}} > 0)",
            at,
        )
        silent = self._api.query(
            f"max by (cluster, job_id, role) (rl_progress_age_longest_seconds{{{of}}})"
            f" > {self._limits.taught_seconds:g}",
            at,
        )
        sure = {job_key(one.labels) for one in plain}
        perhaps = {
            job_key(one.labels)
            for one in silent
            if one.value > self._least_budget(_role(one))
            and job_key(one.labels) not in sure
            and (not self._sums.live or _role(one) in self._sums.live)
        }
        found = sure | self._overdue(perhaps, at) | self._silent_from_the_start(of, at)
        return sorted(found.intersection(among) if among else found)

    def _silent_from_the_start(self, of: str, at: float) -> set[JobKey]:
        """Jobs without any mark whose ranks all stand still: fewer ranks than their world has, or
        ranks without a record that have long stood still."""
        still, job = f"{STILL}{{{of}}}", "by (cluster, job_id)"
        bare = self._api.query(
            f"count {job} ({still}) > 1 unless on (cluster, job_id) {UP}{{{of}}}"
            f" unless on (cluster, job_id) {still} <= {self._limits.bare_seconds:g}",
            at,
        )
        standing = self._api.query(
            f"count {job} ({still}) unless on (cluster, job_id) {SUMS['gaps']}{{{of}}}"
            f" unless on (cluster, job_id) {still} <= {self._limits.still_seconds:g}",
            at,
        )
        long = {job_key(one.labels) for one in bare}
        if not standing:
            return long
        here = {job_key(one.labels): one.value for one in standing}
        worlds = f"group by (cluster, job_id, world_size) (rl_rank_info{{{matchers_of(here)}}})"
        sizes = [
            (job_key(one.labels), one.labels.get("world_size", ""))
            for one in self._api.query(worlds, at)
        ]
        lacks = {key for key, size in sizes if size.isdecimal() and int(size) > here.get(key, inf)}
        return long | lacks

    def _least_budget(self, role: Role) -> float:
        """The smallest budget of the role in any stage, in seconds."""
        stages = self._sums.shown.get(role, {})
        known = [self._sums.budget(role, stage, self._limits) for stage in stages]
        return min((*known, self._limits.untaught_seconds, self._limits.still_seconds))

    def _overdue(self, keys: set[JobKey], at: float) -> set[JobKey]:
        """The jobs among `keys` with a rank that has exceeded the budget of its stage."""
        if not keys:
            return set()
        names = matchers(__name__=("rl_rank_progress_age_seconds", "rl_rank_stage_open_seconds"))
        stages: dict[tuple[JobKey, tuple[str, str, str]], str] = {}
        ages = []
        for one in self._api.query(f"{{{names}, {matchers_of(keys)}}}", at):
            place = job_key(one.labels), rank_key(one.labels)
            if one.labels["__name__"] == "rl_rank_stage_open_seconds":
                stages[place] = one.labels.get("stage", "idle")
            else:
                ages.append((place, one.value))
        return {
            key
            for (key, rank), age in ages
            if key in keys
            and age
            > self._sums.budget((key, rank[0]), stages.get((key, rank), "idle"), self._limits)
        }


def _role(one: Series) -> Role:
    return job_key(one.labels), one.labels.get("role", "")


def _before(now: float) -> Iterator[float]:
    """The times of the past that a judge goes through when it starts."""
    for begin, end, step in _STEPS:
        at = now - begin
        while at < now - end:
            yield at
            at += step
