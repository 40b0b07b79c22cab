"""The loss of a step by cause: the step as it was, compared with the step without the cause.

The shares add up: causes are taken away one after the other, in the order of `Cause`, until every
rank does the same work at the same pace.  The gain from fixing one cause alone is computed
separately, and may be more or less: another rank may be nearly as late.  It leaves out gaps between
operations, since most gaps are waits that would close by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import fmean, median

from stagewatch.whatif.replay import Operation, Replay, Work

Key = tuple[str | int, ...]
KeyOf = Callable[[Operation], Key]

SLOW_RATIO = 1.1
"""A rank is behind in a step if it computes this many times as long as its peers."""
SLOW_SHARE = 0.9
"""A slow rank is behind in this share of the steps."""
LEAST_STEPS = 5


class Cause(Enum):
    """Why a step takes longer than needed."""

    GAPS = "outside of operations"
    DATA_WAIT = "waiting for data"
    CHECKPOINT = "checkpoints"
    SLOW_RANK = "a slow rank"
    UNEVEN_DATA = "uneven data"
    PARTITION = "uneven pipeline partition"
    NETWORK = "network slower than usual"


@dataclass(frozen=True, slots=True)
class Loss:
    """The share of one cause in the time of a step, from 0 to 1."""

    cause: Cause
    share: float
    """The share of the whole; all shares and the ideal add up to 1."""
    worth: float
    """How much shorter the step would be without this cause alone, as a share."""


@dataclass(frozen=True, slots=True)
class Account:
    """Where the time of a job's step went."""

    steps: int
    ranks: int
    measured: float
    """Seconds of an average step, as replayed."""
    ideal: float
    slowdown: float
    """Time of a step divided by that with all work spread evenly (Eq. 1 of arXiv 2505.05713)."""
    slow: tuple[tuple[int, float], ...]
    """The slow ranks, and their computing time divided by that of their peers."""
    losses: tuple[Loss, ...]


def account(replay: Replay) -> Account:
    """Where the time of a job's step went."""
    what_if = _WhatIf(replay)
    measured = before = what_if.without([])
    packed = what_if.without([Cause.GAPS])
    taken: list[Cause] = []
    losses = []
    for cause in Cause:
        taken.append(cause)
        after = what_if.without(taken)
        alone = packed if cause is Cause.GAPS else what_if.without([Cause.GAPS, cause])
        start = measured if cause is Cause.GAPS else packed
        losses.append(Loss(cause, (before - after) / measured, (start - alone) / measured))
        before = after
    operations = replay.operations
    return Account(
        steps=len({one.step for one in operations}),
        ranks=len({one.rank for one in operations}),
        measured=measured,
        ideal=before,
        slowdown=packed / replay.step_time(what_if.spread()),
        slow=tuple(sorted(what_if.slow.items())),
        losses=tuple(losses),
    )


class _WhatIf:
    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        operations = replay.operations
        self.slow = slow_ranks(replay)
        self._of = {
            work: [n for n, one in enumerate(operations) if one.work is work] for work in Work
        }
        self._slow = [at for at in self._of[Work.COMPUTE] if operations[at].rank in self.slow]
        self._healthy = [
            at for at in self._of[Work.COMPUTE] if operations[at].rank not in self.slow
        ]

    def without(self, causes: Sequence[Cause]) -> float:
        """How long a step takes without some causes, in seconds."""
        delays = None if Cause.GAPS in causes else self._replay.delays
        return self._replay.step_time(self._durations(causes), delays)

    def spread(self) -> list[float]:
        """The durations if all ranks, slow ones included, shared the work of every kind evenly."""
        compute = self._of[Work.COMPUTE]
        durations = self._durations([Cause.DATA_WAIT, Cause.CHECKPOINT, Cause.NETWORK])
        self._set(durations, compute, self._means(compute, _kind), _kind)
        return durations

    def _durations(self, causes: Sequence[Cause]) -> list[float]:
        durations = list(self._replay.durations)
        even = self._healthy
        if Cause.SLOW_RANK in causes and self._slow:
            peers = self._means(self._healthy, _kind_stage_step)
            self._set(durations, self._slow, peers, _kind_stage_step)
            even = self._of[Work.COMPUTE]
        if Cause.UNEVEN_DATA in causes:
            self._set(durations, even, self._means(self._healthy, _kind_stage), _kind_stage)
        if Cause.PARTITION in causes:
            of_stage = self._means(self._healthy, _kind_stage)
            of_kind = self._means(self._healthy, _kind)
            for at in self._of[Work.COMPUTE]:
                one = self._replay.operations[at]
                if mean := of_stage.get(_kind_stage(one)):
                    durations[at] *= of_kind[_kind(one)] / mean
        if Cause.NETWORK in causes:
            network = self._of[Work.NETWORK]
            self._set(durations, network, self._means(network, _kind, median), _kind)
        for cause, work in ((Cause.DATA_WAIT, Work.DATA), (Cause.CHECKPOINT, Work.CHECKPOINT)):
            if cause in causes:
                for at in self._of[work]:
                    durations[at] = 0.0
        return durations

    def _set(
        self, durations: list[float], places: Sequence[int], values: Mapping[Key, float], key: KeyOf
    ) -> None:
        for at in places:
            durations[at] = values.get(key(self._replay.operations[at]), durations[at])

    def _means(
        self, places: Sequence[int], key: KeyOf, mean: Callable[[list[float]], float] = fmean
    ) -> dict[Key, float]:
        """The average duration of the operations with the same key."""
        seen: dict[Key, list[float]] = defaultdict(list)
        for at in places:
            seen[key(self._replay.operations[at])].append(self._replay.durations[at])
        return {key: mean(values) for key, values in seen.items()}


def _kind(one: Operation) -> Key:
    return (one.kind,)


def _kind_stage(one: Operation) -> Key:
    return one.kind, one.stage


def _kind_stage_step(one: Operation) -> Key:
    return one.kind, one.stage, one.step


def slow_ranks(replay: Replay) -> dict[int, float]:
    """The ranks that compute longer than their peers (the ranks of the same stage) in nearly every
    step.

    The value is how many times as long, on the median.  Work that varies from step to step, as with
    uneven sequences, names no rank; nor does a stage with one rank.
    """
    totals: dict[tuple[int, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for one, lasted in zip(replay.operations, replay.durations, strict=True):
        if one.work is Work.COMPUTE:
            totals[one.stage, one.step][one.rank] += lasted
    ratios: dict[int, list[float]] = defaultdict(list)
    for of_rank in totals.values():
        for rank, total in of_rank.items():
            peers = [other for peer, other in of_rank.items() if peer != rank]
            if peers and (usual := median(peers)) > 0:
                ratios[rank].append(total / usual)
    return {rank: median(seen) for rank, seen in ratios.items() if _is_slow(seen)}


def _is_slow(ratios: Sequence[float]) -> bool:
    behind = sum(ratio >= SLOW_RATIO for ratio in ratios)
    return len(ratios) >= LEAST_STEPS and behind >= SLOW_SHARE * len(ratios)
