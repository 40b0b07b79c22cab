"""What is remembered of a job between two looks: since when it is suspected, when it was suspended
or idle, and which ranks have just died.

The same moments always give the same verdicts.  So a judge that is restarted first goes through the
moments of the last minutes, and then answers as if it had run all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.judge import Past, Verdict, judge
from stagewatch.judgement.limits import (
    DEFAULT,
    LASTING_SECONDS,
    MARKING_SECONDS,
    SPURT_SECONDS,
    SUSPENDED_SECONDS,
    Limits,
    Stages,
)
from stagewatch.judgement.paging import (
    is_due,
    patience_seconds,
    silent_seconds,
    surely_hangs,
    works,
)
from stagewatch.ranks.wait_class import WaitClass


@dataclass(frozen=True, slots=True)
class Moment:
    """All ranks of one job at one moment."""

    time: float
    """Unix seconds."""
    ranks: tuple[RankFacts, ...]
    """Also the ranks that have died, or left lately."""
    shown: dict[str, Stages] = field(default_factory=dict)
    """The gaps between marks of progress by role and stage."""


@dataclass(frozen=True, slots=True)
class State:
    """The verdict on one role of a job, and what follows from earlier looks."""

    verdict: Verdict
    since: float | None
    """Since when the role has been suspected without a break, Unix seconds; `None` if it is not."""
    silent_seconds: float | None
    """How long no rank has made progress; `None` if no rank is overdue."""
    patience_seconds: float | None
    """How long the role may be silent before a page; `None` if it never pages."""
    paged: bool
    """Whether the role pages now."""

    @property
    def gpus(self) -> int:
        """Number of GPUs that the role holds: those that its ranks name, else one for each rank."""
        live = self.verdict.case.live
        return len({rank.gpu for rank in live if rank.gpu}) or len(live)


_Since = dict[tuple[str, int, str], float]
"""Unix seconds, by role, rank and node."""


@dataclass(slots=True)
class _Role:
    """What is remembered of a role; all times are Unix seconds."""

    since: float | None = None
    """Since when it has been suspected."""
    suspended: float = 0.0
    """When all its ranks were last seen stopped."""
    idled: float = 0.0
    """When it was last idle."""
    worked: float = 0.0
    """When a suspect was last at work."""


class Course:
    """One job over time."""

    def __init__(self, limits: Limits = DEFAULT, *, watched: bool = False) -> None:
        """`watched`: there was a look just before the first moment, and no rank was dead."""
        self._watched = watched
        self._limits = limits
        self._roles: dict[str, _Role] = {}
        self._died: _Since = {}
        self._marking: _Since = {}

    def look(self, moment: Moment) -> list[State]:
        """Judge the job at this moment; moments must come in order of time."""
        ranks = self._with_past(moment)
        self._note_suspended(moment)
        past = Past(
            frozenset(name for name, role in self._roles.items() if role.since is not None),
            frozenset(self._suspended(moment)),
            asking=True,
        )
        jobs = {rank.job_id: past for rank in ranks}
        verdicts = judge(ranks, jobs, self._limits)
        known = {verdict.role for verdict in verdicts}
        self._roles = {name: role for name, role in self._roles.items() if name in known}
        sure = surely_hangs(verdicts)
        states = [self._state(verdict, moment, sure=sure) for verdict in verdicts]
        early = not any(
            is_due(one.verdict, one.silent_seconds, one.patience_seconds) for one in states
        )
        return [replace(one, verdict=replace(one.verdict, early=early)) for one in states]

    def _with_past(self, moment: Moment) -> tuple[RankFacts, ...]:
        """The ranks, with the seconds since they died or began to make marks.

        What a first look finds counts as having lasted for long."""
        first = moment.time if self._watched else 0.0
        dead = {_key(rank) for rank in moment.ranks if _dead(rank)}
        self._died = {key: self._died.get(key, first) for key in dead}
        marking = {_key(rank) for rank in moment.ranks if rank.marks}
        self._marking = {key: self._marking.get(key, first) for key in marking}
        self._watched = True
        return tuple(self._as_seen(rank, moment.time) for rank in moment.ranks)

    def _as_seen(self, rank: RankFacts, now: float) -> RankFacts:
        key = _key(rank)
        if _dead(rank):
            return replace(rank, dead_seconds=now - self._died[key])
        seconds = now - self._marking.get(key, 0.0)
        return replace(rank, marking_seconds=seconds) if seconds < MARKING_SECONDS else rank

    def _note_suspended(self, moment: Moment) -> None:
        """Note the roles whose ranks are all stopped: somebody outside of the job did that."""
        for name, live in _live(moment.ranks).items():
            role = self._roles.setdefault(name, _Role())
            if all(rank.wait_class is WaitClass.STOPPED for rank in live):
                role.suspended = moment.time

    def _suspended(self, moment: Moment) -> list[str]:
        """The roles that were suspended a moment ago."""
        found = []
        for name, live in _live(moment.ranks).items():
            longest = max((rank.budget_seconds or 0.0 for rank in live), default=0.0)
            if self._roles[name].suspended >= moment.time - max(longest, SUSPENDED_SECONDS):
                found.append(name)
        return found

    def _state(self, verdict: Verdict, moment: Moment, *, sure: bool) -> State:
        role = self._roles.setdefault(verdict.role, _Role())
        if not verdict.stalled:
            role.since = None
        elif role.since is None:
            role.since = moment.time
        if verdict.excuse is not None and verdict.excuse.kind == "idle":
            role.idled = moment.time
        if works(verdict, moment.ranks):
            role.worked = moment.time
        patience = patience_seconds(
            verdict,
            moment.ranks,
            moment.shown.get(verdict.role, {}),
            worked=moment.time - role.worked <= SPURT_SECONDS,
            sure=sure,
            limits=self._limits,
        )
        silent = silent_seconds(verdict)
        if silent is not None:
            silent = min(silent, moment.time - max(role.suspended, role.idled))
        lasts = role.since is not None and moment.time - role.since >= LASTING_SECONDS
        paged = lasts and is_due(verdict, silent, patience)
        return State(verdict, role.since, silent, patience, paged)


def _key(rank: RankFacts) -> tuple[str, int, str]:
    return rank.role, rank.rank, rank.node


def _dead(rank: RankFacts) -> bool:
    return rank.wait_class is WaitClass.GONE and rank.left_seconds is None


def _live(ranks: Sequence[RankFacts]) -> dict[str, list[RankFacts]]:
    """The living ranks by role."""
    roles: dict[str, list[RankFacts]] = {}
    for rank in ranks:
        if rank.wait_class is not WaitClass.GONE:
            roles.setdefault(rank.role, []).append(rank)
    return roles
