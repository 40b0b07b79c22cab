"""Looks at the ranks of all jobs of a Prometheus, and finds the slow ones.

One query returns the ranks that stand out, now or over ten minutes.  All further queries are about
these few.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

from stagewatch.core.errors import SourceError
from stagewatch.judgement.from_prometheus import Queries, matchers_of
from stagewatch.judgement.slow import (
    DEVIATIONS,
    LASTING_EXCESS,
    LASTING_SECONDS,
    LATELY_SECONDS,
    LEAST_EXCESS,
    NODE_RANKS,
    STEPS_SECONDS,
    TURNS_WINDOWS,
    WINDOW_SECONDS,
    Moments,
    Node,
    Past,
    Rank,
    Role,
    Steps,
    Suspect,
    Turn,
    in_windows,
    lasting,
    lately,
    node_of,
    role_of,
    rotates,
    slow_nodes,
    step_turn,
)
from stagewatch.judgement.witnesses import RANK, ROLE, WITNESSES
from stagewatch.prometheus.api import Series
from stagewatch.prometheus.selectors import matchers

WITNESS_SECONDS = 60.0
"""How old the witnesses of slow ranks may be: their queries read many series of a job."""
TURN_SECONDS = 30.0
"""The time between two looks at single steps."""
MAX_WITNESSED = 200
"""The most slow ranks whose witnesses are queried: those that cost the most."""
MEANS_SECONDS = 60.0
"""The time between two looks at the means of ten minutes: Prometheus reads forty windows of every
rank for them."""
_ASKED = 300
"""The most ranks in one query."""
_PEERS = f"{ROLE}, peers"
_EXCESS = "rank:rl_own_work_excess:ratio"
_MEDIAN = "job_role_peers:rl_own_work:median"
_STEPS = "job_role:rl_slow_steps:count"
_SINCE = "rl_rank_slow_since_timestamp_seconds"

STANDS_OUT = (
    f"({_EXCESS} > on ({_PEERS}) group_left ()"
    f" ({LEAST_EXCESS:g} + {DEVIATIONS:g} *"
    f" avg_over_time(job_role_peers:rl_own_work_excess:mad[{LASTING_SECONDS:.0f}s])))"
    f" * on ({_PEERS}) group_left () {_MEDIAN}"
)
"""PromQL: the ranks that stand out in the latest window, with the share of time lost by them."""
LASTING = (
    f"avg_over_time({_EXCESS}[{LASTING_SECONDS:.0f}s]) > {LASTING_EXCESS:g}"
    f" and on ({RANK}) {_EXCESS}"
)
"""PromQL for the ranks with more work than their peers over ten minutes."""
MOMENTS = f"sum by ({ROLE}, moment) (rl_step_moments)"
"""PromQL for how the single steps of every role vary; see `Moments`."""


@dataclass(frozen=True, slots=True)
class ShownWitness:
    """A witness of a slow rank."""

    witness: str
    reason: str
    words: str
    value: float


@dataclass(frozen=True, slots=True)
class SlowRank:
    """How slow a rank is."""

    ratio: float
    """Its own work, divided by that of its peers."""
    since: float
    """Unix time."""
    cost: float | None
    """The share of its time that the job loses."""
    seconds_per_step: float | None = None
    witnesses: tuple[ShownWitness, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowLook:
    """The result of one look at all ranks."""

    ranks: Mapping[Rank, SlowRank] = field(default_factory=dict)
    nodes: Mapping[Node, float] = field(default_factory=dict)
    rotates: Mapping[Role, int] = field(default_factory=dict)
    """The number of ranks that take turns in being slow, in roles without a slow rank."""
    turns: Mapping[Role, Turn] = field(default_factory=dict)
    """The roles of `rotates` in which another rank is slow in every step."""


class SlowWatch:
    """The ranks of one Prometheus, look by look."""

    def __init__(self, api: Queries) -> None:
        self._api = api
        self._past = Past()
        self._means: dict[Rank, float] = {}
        """Mean excess over ten minutes, of ranks where it is large."""
        self._turned = 0.0
        self._witnessed = 0.0
        self._shown_witnesses: dict[Rank, tuple[ShownWitness, ...]] = {}

    def look(self, now: float) -> SlowLook:
        """The slow ranks as of a Unix time.

        Missed looks, also those before this process began, are made up for.  Raises `SourceError`
        if the server does not answer."""
        times = list(_due(self._past.last, now))
        if not self._past.last:
            self._remember(times[0])
        for at in times[:-1]:
            self._look(at, now)
        found = self._look(now, now)
        return replace(found, ranks=self._with_witnesses(found.ranks, now))

    def _remember(self, at: float) -> None:
        """Read since when ranks have been slow, from the series of an earlier judge."""
        for one in self._api.query(f"min by ({RANK}) (last_over_time({_SINCE}[5m]))", at):
            self._past.since[_rank(one)] = one.value, at

    def _look(self, at: float, now: float) -> SlowLook:
        past = self._past
        past.stand_out(self._by_rank(STANDS_OUT, at), at)
        if at // MEANS_SECONDS != past.last // MEANS_SECONDS:
            self._means = self._by_rank(LASTING, at)
        suspects, peers = self._suspects(past.suspects(at), self._means, at)
        slow = {
            rank: excess
            for rank, suspect in suspects.items()
            if (excess := _first(lately(suspect, at), lasting(suspect))) is not None
        }
        past.slow(slow, at)
        if at - self._turned > TURN_SECONDS - WINDOW_SECONDS / 2 and at > now - 150:
            past.take_turns(self._turns(at), at)
            self._turned = at
        ranks = self._slow(slow, peers, at)
        turns = past.lasting_turns()
        quiet = {role: turn for role, turn in turns.items() if role not in past.slow_roles()}
        found = SlowLook(
            ranks,
            self._nodes({rank: one.ratio for rank, one in ranks.items()}, at),
            {role: turn.ranks for role, turn in quiet.items()} | self._rotating(at),
            quiet,
        )
        past.last = at
        return found

    # ---- Who is slow ----------------------------------------------------------------------------

    def _suspects(
        self, ranks: Collection[Rank], means: Mapping[Rank, float], at: float
    ) -> tuple[dict[Rank, Suspect], dict[Rank, str]]:
        """The series that decide whether these ranks are slow, for ranks with a window now, and the
        group of peers of each."""
        some = {*ranks, *means}
        if not some:
            return {}, {}
        steps = self._by_role(f"{_STEPS}{{{_jobs(some)}}}", at)
        long = f"avg_over_time({_STEPS}{{{_jobs(some)}}}[{LASTING_SECONDS:.0f}s])"
        lasting_steps = self._by_role(long, at)
        peers = {}
        mean: dict[Rank, float] = {}
        deviation: dict[Rank, float] = {}
        windows: dict[Rank, float] = {}
        for selector in _selectors(some):
            for one in self._api.query(f"{_EXCESS}{{{selector}}}", at):
                peers[_rank(one)] = one.labels.get("peers", "")
            short = f"avg_over_time({_EXCESS}{{{selector}}}[{LATELY_SECONDS:.0f}s])"
            mean |= self._by_rank(short, at)
        for selector in _selectors(means):
            long = f"{_EXCESS}{{{selector}}}[{LASTING_SECONDS:.0f}s]"
            deviation |= self._by_rank(f"stddev_over_time({long})", at)
            windows |= self._by_rank(f"count_over_time({long})", at)
        suspects = {
            rank: Suspect(
                stood_out=self._past.stood_out.get(rank, ()),
                excess=mean.get(rank),
                excess_lasting=means.get(rank),
                deviation=deviation.get(rank, 0.0),
                windows=windows.get(rank, 0.0),
                role_steps=steps.get(rank.role_key),
                role_steps_lasting=lasting_steps.get(rank.role_key),
            )
            for rank in some & peers.keys()
        }
        shown = self._single_steps(
            {rank for rank, one in suspects.items() if in_windows(one, at)}, peers, at
        )
        return {
            rank: replace(suspect, steps=shown.get(rank)) for rank, suspect in suspects.items()
        }, peers

    def _single_steps(
        self, ranks: Collection[Rank], peers: Mapping[Rank, str], at: float
    ) -> dict[Rank, Steps]:
        """The latest steps of these ranks with the medians of their peers, if steps have
        numbers."""
        if not ranks:
            return {}
        jobs = _jobs(ranks)
        mean, variance = (
            self._by_peers(f"quantile by ({_PEERS}) (0.5, {one(jobs)})", at)
            for one in (step_mean, step_variance)
        )
        found = {}
        for selector in _selectors(ranks):
            count, own, varies = (
                self._by_rank(one(selector), at) for one in (step_count, step_mean, step_variance)
            )
            for rank in count.keys() & own.keys() & varies.keys() & set(ranks):
                group = rank.role_key, peers[rank]
                found[rank] = Steps(
                    *(count[rank], own[rank], varies[rank]),
                    *(mean.get(group, 0.0), variance.get(group, 0.0)),
                )
        return found

    def _slow(
        self, slow: Mapping[Rank, float], peers: Mapping[Rank, str], at: float
    ) -> dict[Rank, SlowRank]:
        """The slow ranks with what they cost, by their excess."""
        if not slow:
            return {}
        medians: dict[tuple[Role, str], float] = {}
        pace: dict[Role, float] = {}
        for selector in _selectors(slow):
            groups = f"{_MEDIAN} and on ({_PEERS}) {_EXCESS}{{{selector}}}"
            medians |= self._by_peers(groups, at)
        for selector in _selectors({*slow, *(rank._replace(rank="0") for rank in slow)}):
            steps = f"max by ({ROLE}) (deriv(rl_rank_step{{{selector}}}[2m])) > 0"
            pace |= self._by_role(steps, at)
        found = {}
        for rank, excess in slow.items():
            median = medians.get((rank.role_key, peers[rank]))
            cost = None if median is None else excess * median
            per_step = (
                None if cost is None or rank.role_key not in pace else cost / pace[rank.role_key]
            )
            found[rank] = SlowRank(1 + excess, self._past.since[rank][0], cost, per_step)
        return found

    def _nodes(self, slow: Mapping[Rank, float], at: float) -> dict[Node, float]:
        """The nodes whose ranks are all slow, with their mean ratio."""
        many: dict[Node, list[Rank]] = {}
        for rank in slow:
            many.setdefault(node_of(rank), []).append(rank)
        nodes = sorted({node.node for node, some in many.items() if len(some) >= NODE_RANKS})
        if not nodes:
            return {}
        selector = f"{_jobs(slow)}, {matchers(node=nodes)}"
        counted = f"count by (cluster, node, job_id, role) (rank:rl_own_work:ratio{{{selector}}})"
        sizes = {
            Node(*(one.labels.get(name, "") for name in Node._fields)): one.value
            for one in self._api.query(counted, at)
        }
        return slow_nodes(slow, sizes)

    # ---- Who takes turns ------------------------------------------------------------------------

    def _rotating(self, at: float) -> dict[Role, int]:
        """The roles in which different ranks stand out in turn, with the number of these ranks."""
        loud = self._past.slow_roles()
        some = {
            role: standings
            for role, standings in self._past.standings.items()
            if len(standings) >= TURNS_WINDOWS and role not in loud
        }
        if not some:
            return {}
        selector = matchers_of({(role.cluster, role.job_id) for role in some})
        steps = self._by_role(f"{_STEPS}{{{selector}}}", at)
        return {
            role: ranks
            for role, standings in some.items()
            if (ranks := rotates(standings, at, steps.get(role))) is not None
        }

    def _turns(self, at: float) -> dict[Role, Turn]:
        """The roles in which another rank is slow in every step."""
        found: defaultdict[Role, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for one in self._api.query(MOMENTS, at):
            found[role_of(one.labels)][one.labels.get("moment", "")] = one.value
        return {
            role: turn
            for role, of in found.items()
            if (
                turn := step_turn(Moments(**{each.name: of[each.name] for each in fields(Moments)}))
            )
        }

    # ---- What may explain it --------------------------------------------------------------------

    def _with_witnesses(self, slow: Mapping[Rank, SlowRank], now: float) -> dict[Rank, SlowRank]:
        old = now - self._witnessed > WITNESS_SECONDS - WINDOW_SECONDS / 2
        if slow and (old or not slow.keys() <= self._shown_witnesses.keys()):
            dear = sorted(slow, key=lambda rank: (-(slow[rank].cost or 0.0), rank))[:MAX_WITNESSED]
            self._shown_witnesses = dict.fromkeys(slow, ()) | self._witnesses(dear, now)
            self._witnessed = now
        return {
            rank: replace(one, witnesses=self._shown_witnesses.get(rank, ()))
            for rank, one in slow.items()
        }

    def _witnesses(
        self, ranks: Collection[Rank], at: float
    ) -> dict[Rank, tuple[ShownWitness, ...]]:
        found: dict[Rank, tuple[ShownWitness, ...]] = {}
        (selector,) = _selectors(ranks)
        for witness in WITNESSES:
            asked = witness.expression.replace("RANKS", selector).replace("JOBS", _jobs(ranks))
            series: list[Series] = []
            with contextlib.suppress(SourceError):  # the rank is slow all the same
                series = self._api.query(asked, at)
            for one in series:
                rank, reason = _rank(one), one.labels.get("reason", "")
                before = found.get(rank, ())
                lacks = witness.beside and witness.beside not in {each.witness for each in before}
                if rank in ranks and witness.is_shown(one.value) and not lacks:
                    words = witness.sentence(reason)
                    found[rank] = (*before, ShownWitness(witness.name, reason, words, one.value))
        return found

    # ---- Answers by key -------------------------------------------------------------------------

    def _by_rank(self, expression: str, at: float) -> dict[Rank, float]:
        return {_rank(one): one.value for one in self._api.query(expression, at) if _number(one)}

    def _by_role(self, expression: str, at: float) -> dict[Role, float]:
        return {
            role_of(one.labels): one.value
            for one in self._api.query(expression, at)
            if _number(one)
        }

    def _by_peers(self, expression: str, at: float) -> dict[tuple[Role, str], float]:
        return {
            (role_of(one.labels), one.labels.get("peers", "")): one.value
            for one in self._api.query(expression, at)
            if _number(one)
        }


def step_count(selector: str) -> str:
    """PromQL for the number of steps in the latest three minutes, by rank.  For a younger record it
    is all steps, as its sums begin at 0."""
    latest = _latest("rl_rank_steps_total", selector)
    return f"(({_EXCESS}{{{selector}}} ^ 0) * on ({RANK}) group_left () {latest} > 0)"


def step_mean(selector: str) -> str:
    """PromQL for the mean own work of these steps, in seconds."""
    latest = _latest("rl_rank_step_work_seconds_total", selector)
    return f"((1 / {step_count(selector)}) * on ({RANK}) group_left () {latest})"


def step_variance(selector: str) -> str:
    """PromQL for the variance of the own work of these steps, in squared seconds."""
    latest = _latest("rl_rank_step_work_squared_seconds_total", selector)
    squared = f"((1 / {step_count(selector)}) * on ({RANK}) group_left () {latest})"
    return f"({squared} - {step_mean(selector)} ^ 2)"


def _latest(counter: str, selector: str) -> str:
    now = f"{counter}{{{selector}}}"
    return f"sum by ({RANK}) ({now} - ({now} offset {STEPS_SECONDS:.0f}s or 0 * {now}))"


def _due(last: float, now: float) -> Iterator[float]:
    """The times at which a look was due since the last one, up to now."""
    missed = (min(LASTING_SECONDS, now - last) - WINDOW_SECONDS / 2) // WINDOW_SECONDS
    for back in range(max(0, int(missed)), -1, -1):
        yield now - back * WINDOW_SECONDS


def _rank(one: Series) -> Rank:
    return Rank(*(one.labels.get(name, "") for name in Rank._fields))


def _number(one: Series) -> bool:
    return one.value == one.value


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _jobs(ranks: Iterable[Rank]) -> str:
    """Label matchers for the jobs of these ranks; the caller drops what they match beyond."""
    return matchers_of({(rank.cluster, rank.job_id) for rank in ranks})


def _selectors(ranks: Collection[Rank]) -> Iterator[str]:
    """Label matchers for these ranks and few others, for a limited number of ranks at a time."""
    numbered = sorted(ranks)
    for begin in range(0, len(numbered), _ASKED):
        some = numbered[begin : begin + _ASKED]
        numbers = sorted({rank.rank for rank in some})
        yield f"{_jobs(some)}, {matchers(rank=numbers)}"
