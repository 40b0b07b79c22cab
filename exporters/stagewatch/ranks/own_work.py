"""How long each rank has worked, and how long it has waited in collectives and for its device, by
stage.

All ranks take equally long for a step of a synchronous job; they differ in how long they wait.  The
time that the training thread of a rank spends outside of these waits is its own work.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.ranks.model import RANK_LABELS
from stagewatch.ranks.peers import Admits, peers_of
from stagewatch.ranks.records import Life, RankRecord

_LABELS = (*RANK_LABELS, "stage")
_OUTSIDE_OF_STEPS = frozenset({"init", "eval", "checkpoint", "cleanup"})
_WINDOW, _APART = 300 * 10**9, 10 * 10**9
"""Nanoseconds over which single steps are compared, and between two kept sums over steps."""
_LEAST_STEPS = 20

WORKED = counter(
    "rl_rank_worked_seconds_total",
    "Time that the rank's training thread has spent outside of collectives and without waiting for "
    "its device while the stage was its innermost open one, up to now.",
    _LABELS,
)
OWN_WORK = counter(
    "rl_rank_own_work_seconds_total",
    "Time that the rank's training thread has spent outside of collectives and without waiting for "
    "its device, in all stages but init, eval, checkpoint and cleanup. `peers` says with whom it "
    "is compared: its data-parallel group of three members or more; empty for all ranks of its "
    "role; `none` for a rank without one that may be a part of a pipeline.",
    (*RANK_LABELS, "peers"),
)
WAITED = counter(
    "rl_rank_waited_seconds_total",
    "Time that the rank's training thread has spent inside of collectives, or waiting for its "
    "device, while the stage was its innermost open one, up to now: it waits for its peers there, "
    "for the transport or for kernels.",
    _LABELS,
)
DATA_WAIT = counter(
    "rl_rank_data_wait_seconds_total",
    "Time that the rank's training thread has waited for batches of a PyTorch DataLoader, up to "
    "now; it counts as work.",
    RANK_LABELS,
)
DEVICE_WAIT = counter(
    "rl_rank_device_wait_seconds_total",
    "Time that the rank's training thread has waited for its device, as in synchronize() or "
    ".item(), up to now; rl_rank_waited_seconds_total holds it as well.",
    RANK_LABELS,
)
SPENT = counter(
    "rl_spent_seconds_total",
    "Time that the role's ranks on this node have spent since the agent first saw them, by `part`: "
    "`work` and `waiting` by stage, without init, eval, checkpoint and cleanup; and, over all "
    "stages, waits for `data` and `device`. The time of ended ranks still counts.",
    ("job_id", "role", "stage", "part"),
)
STEPS = counter(
    "rl_rank_steps_total",
    "Steps of the rank that the agent has measured, by the numbers that the rank gives them. "
    "Steps with a stage init, eval, checkpoint or cleanup do not count.",
    RANK_LABELS,
)
STEP_WORK = counter(
    "rl_rank_step_work_seconds_total",
    "Time in the counted steps that the rank's training thread has spent outside of collectives, "
    "and not waiting for its device.",
    RANK_LABELS,
)
STEP_WORK_SQUARED = counter(
    "rl_rank_step_work_squared_seconds_total",
    "Sum of the squares of the steps' times of own work, in seconds squared.",
    RANK_LABELS,
)
MOMENTS = gauge(
    "rl_step_moments",
    "How the steps of five minutes vary, as sums over the ranks of a role on this node that have "
    "made more than 20 steps: how many `ranks`, the `variance` and the `third` central moment of "
    "their work, the mean `time` and the `time_variance`, in powers of seconds.",
    ("job_id", "role", "moment"),
)
_MOMENTS = "ranks", "third", "variance", "time", "time_variance"


@dataclass(slots=True)
class StepSums:
    """Sums of powers over the steps of a rank, which give means, variances and skewness.

    All steps between two looks are counted as long as the record still has them, which is up to
    `stagewatch.record.STEPS` steps.
    """

    last: int = 0
    """When the last known step began, boot time in nanoseconds."""
    sums: tuple[float, ...] = (0.0,) * 6
    """The number of steps; the sums of their time, its square, their work, its square and cube."""
    past: deque[tuple[int, tuple[float, ...]]] = field(default_factory=deque)
    """The sums over the last five minutes, with their boot times in nanoseconds."""

    def take(self, begun: tuple[tuple[int, int], ...], now: int) -> None:
        """Count the steps that have ended since the last call; `begun`: `Lane.steps`.

        `now`: the boot time in nanoseconds; no step can have begun later.
        """
        known = [one for one in begun if self.last <= one[0] <= now]
        for (start, waited), (end, waited_then) in itertools.pairwise(known):
            time, wait = end - start, waited_then - waited
            if time and waited >= 0 and 0 <= wait <= time:
                self.count(time / 1e9, (time - wait) / 1e9)
        if known:
            self.last = known[-1][0]

    def count(self, time: float, work: float, steps: int = 1) -> None:
        """Count steps of so many seconds each."""
        powers = 1.0, time, time**2, work, work**2, work**3
        self.sums = tuple(
            sum_ + steps * power for sum_, power in zip(self.sums, powers, strict=True)
        )

    def moments(self, now: int) -> tuple[float, ...]:
        """The values of `MOMENTS` for one rank; zeros before five minutes, and with few steps."""
        if not self.past or now - self.past[-1][0] >= _APART:
            self.past.append((now, self.sums))
        while len(self.past) > 1 and now - self.past[1][0] >= _WINDOW:
            self.past.popleft()
        began, before = self.past[0]
        steps, *sums = (sum_ - old for sum_, old in zip(self.sums, before, strict=True))
        if now - began < _WINDOW or steps <= _LEAST_STEPS:
            return (0.0,) * len(_MOMENTS)
        time, time_squared, work, squared, cubed = (sum_ / steps for sum_ in sums)
        third = cubed - 3 * work * squared + 2 * work**3
        return 1.0, third, squared - work**2, time, time_squared - time**2


@dataclass(frozen=True, slots=True)
class _Look:
    """How long a rank has worked and waited so far, in nanoseconds."""

    stages: Mapping[str, tuple[int, int]]
    """Work and waiting by stage."""
    parts: Mapping[tuple[str, str], int]
    """By the stages and parts of `SPENT`."""
    steps: StepSums


class OwnWork:
    """Work and waiting of ranks, which never decrease while the record of a rank is there."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}
        """The last look at each rank, by the name of its record."""
        self._spent: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
        """Nanoseconds of each role, by stage and part."""

    def add(self, out: Samples, records: list[RankRecord], now: float, admits: Admits) -> None:
        """Add the work and waiting of these records, and forget all other ranks.

        `now`: a time of the clock that counts suspend, no earlier than the reading of the records.
        A wait that lasts counts until `now`, so that a later look may find a little less; then the
        higher figure stays until time has caught up with it.
        """
        nanoseconds = int(now * 1e9)
        before, self._looks = self._looks, {}
        spent_before, self._spent = self._spent, {}
        moments: defaultdict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
        for record in records:
            role = record.job_id, record.role
            rank = *role, record.rank
            old = before.get(record.name)
            look = self._looks[record.name] = _look(record, nanoseconds, old)
            for stage, (worked, waited) in look.stages.items():
                out.add(WORKED, worked / 1e9, *rank, stage)
                out.add(WAITED, waited / 1e9, *rank, stage)
            own = [one for (_, part), one in look.parts.items() if part == "work"]
            if own:
                out.add(OWN_WORK, sum(own) / 1e9, *rank, peers_of(record, now, admits))
            for metric, part in ((DATA_WAIT, "data"), (DEVICE_WAIT, "device")):
                out.add(metric, look.parts["", part] / 1e9 or None, *rank)
            spent = self._spent.setdefault(role, spent_before.get(role) or Counter())
            for key, amount in look.parts.items():
                spent[key] += amount
            for key, amount in (old or look).parts.items():
                spent[key] -= amount
            count, _, _, work, squared, _ = look.steps.sums
            if count:
                out.add(STEPS, count, *rank)
                out.add(STEP_WORK, work, *rank)
                out.add(STEP_WORK_SQUARED, squared, *rank)
            if record.life is Life.ALIVE:
                moments[role].append(look.steps.moments(nanoseconds))
        _add_spent(out, self._spent)
        for role, of_ranks in moments.items():
            for name, of_moment in zip(_MOMENTS, zip(*of_ranks, strict=True), strict=True):
                if any(of_moment):
                    out.add(MOMENTS, sum(of_moment), *role, name)


def _look(record: RankRecord, now: int, before: _Look | None) -> _Look:
    """One look at a rank, in which no time is shorter than in the look before."""
    stages = _own_work(record, now)
    waits = _waits(record, now)
    steps = StepSums()
    if before is not None:
        for stage, (worked, waited) in stages.items():
            old = before.stages.get(stage, (worked, waited))
            stages[stage] = max(worked, old[0]), max(waited, old[1])
        waits = max(waits[0], before.parts["", "data"]), max(waits[1], before.parts["", "device"])
        steps = before.steps
    if record.training is not None:
        steps.take(record.training.steps, now)
    parts = {("", "data"): waits[0], ("", "device"): waits[1]}
    for stage, (worked, waited) in stages.items():
        if stage not in _OUTSIDE_OF_STEPS:
            parts[stage, "work"], parts[stage, "waiting"] = worked, waited
    return _Look(stages, parts, steps)


def _add_spent(
    out: Samples, spent: Mapping[tuple[str, str], Mapping[tuple[str, str], int]]
) -> None:
    for role, of_role in spent.items():
        for (stage, part), nanoseconds in of_role.items():
            out.add(SPENT, nanoseconds / 1e9 if stage or nanoseconds else None, *role, stage, part)


def work_and_waiting(record: RankRecord, now: float) -> tuple[float, float]:
    """Seconds that the training thread has worked and waited so far, over all stages.

    `now`: as in `OwnWork.add`.
    """
    times = _own_work(record, int(now * 1e9)).values()
    return sum(worked for worked, _ in times) / 1e9, sum(waited for _, waited in times) / 1e9


def _own_work(record: RankRecord, now: int) -> dict[str, tuple[int, int]]:
    """Nanoseconds that the training thread has worked and waited, by stage, up to `now`."""
    lane = record.training
    if lane is None:
        return {}
    times = dict(lane.times)
    if record.life is Life.ALIVE and lane.progress:
        stage = lane.frames[-1].stage if lane.frames else "idle"
        spent, waited = times.get(stage, (0, 0))
        times[stage] = spent + max(0, now - int(lane.progress * 1e9)), waited
    work = {}
    for stage, (spent, so_far) in times.items():
        waited = min(max(0, so_far + now if so_far < 0 else so_far), spent)
        work[stage] = spent - waited, waited
    return work


def _waits(record: RankRecord, now: int) -> tuple[int, int]:
    """Nanoseconds that the training thread has waited for data, and for its device, up to `now`."""
    lane = record.training
    if lane is None:
        return 0, 0
    alive = record.life is Life.ALIVE
    return _up_to(now, lane.batches, alive=alive), _up_to(now, lane.device, alive=alive)


def _up_to(now: int, waited: int, *, alive: bool) -> int:
    """The waited nanoseconds up to `now`, from a word that is negative during a wait."""
    if waited >= 0:
        return min(waited, now)
    return max(0, waited + now) if alive else 0
