"""Operations of a job; computes their times if some of them had taken longer or shorter."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean

from stagewatch.core.errors import StagewatchError


class Work(Enum):
    """The kind of an operation."""

    COMPUTE = "compute"
    NETWORK = "network"
    DATA = "data"
    CHECKPOINT = "checkpoint"


@dataclass(slots=True)
class Operation:
    """One operation of one rank in one step; times in seconds."""

    rank: int
    stage: int
    """Position in the pipeline."""
    step: int
    kind: str
    work: Work
    start: float
    end: float
    after: list[int] = field(default_factory=list)
    """The operations of the same rank that must have ended before, by their index in the list."""
    group: object = None
    """Operations of one group and step begin to transfer once the last of them has begun."""


class Replay:
    """Plays the operations of a job again."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        """Raises `StagewatchError` if operations wait for each other in a circle."""
        self.operations = operations
        self._units = _units(operations)
        self._steps = [one.step for one in operations]
        self._after = [one.after for one in operations]
        began: dict[int, float] = {}
        for one in operations:
            began[one.step] = min(one.start, began.get(one.step, one.start))
        self.durations = [0.0] * len(operations)
        """By operation, how long it computes, or transfers once all of its group have begun."""
        self.delays = [0.0] * len(operations)
        """By operation, how long it had not begun although no known cause held it up."""
        for unit in self._units:
            latest = max(operations[at].start for at in unit)
            for at in unit:
                one = operations[at]
                self.durations[at] = max(0.0, one.end - latest)
                ready = max((operations[u].end for u in one.after), default=began[one.step])
                self.delays[at] = max(0.0, one.start - ready)

    def step_time(self, durations: Sequence[float], delays: Sequence[float] | None = None) -> float:
        """The average time of a step with these durations and only these delays."""
        ends = [0.0] * len(durations)
        waits = self._after
        for unit in self._units:
            begins = 0.0
            for at in unit:
                ready = delays[at] if delays else 0.0
                if before := waits[at]:
                    ready += max([ends[u] for u in before])
                begins = max(begins, ready)
            for at in unit:
                ends[at] = begins + durations[at]
        longest: dict[int, float] = {}
        for step, end in zip(self._steps, ends, strict=True):
            if end > longest.get(step, 0.0):
                longest[step] = end
        return fmean(longest.values())


def _units(operations: Sequence[Operation]) -> list[list[int]]:
    """The operations that end together, ordered after those that they wait for."""
    grouped: dict[object, list[int]] = defaultdict(list)
    for at, one in enumerate(operations):
        grouped[at if one.group is None else (one.step, one.group)].append(at)
    units = list(grouped.values())
    unit_of = {at: number for number, unit in enumerate(units) for at in unit}
    waits = [0] * len(units)
    then: list[list[int]] = [[] for _ in units]
    for at, one in enumerate(operations):
        for before in one.after:
            waits[unit_of[at]] += 1
            then[unit_of[before]].append(unit_of[at])
    ready = deque(number for number, count in enumerate(waits) if not count)
    ordered = []
    while ready:
        number = ready.popleft()
        ordered.append(units[number])
        for following in then[number]:
            waits[following] -= 1
            if not waits[following]:
                ready.append(following)
    if len(ordered) < len(units):
        raise StagewatchError("operations of this trace wait for each other in a circle")
    return ordered
