"""Measures the long tail of a rollout: compares the times of the samples in one batch.

A hook opens a `Batch` around the generation of a batch, and a `Sample` around every sample in it,
in any thread or task.  The scalars are `rollout_tail`, the time of the slowest sample divided by
the median, and `rollout_tail_share`, the share of the batch's time when less than a tenth of its
samples were still generating.
"""

from __future__ import annotations

import time
from contextvars import ContextVar, Token

from stagewatch.client import _api
from stagewatch.client._harmless import swallow

MAX_SAMPLES = 65_536
"""Samples of a batch that are measured; a batch of more has no tail, so that memory is bounded."""
MANY = 10
"""A tenth of no more samples than these is less than one of them: the batch has no such share."""

_current: ContextVar[Batch | None] = ContextVar("stagewatch_batch", default=None)


class Batch:
    """The samples that are generated together.  Never raises.

    Tasks and threads that start inside of it inherit it, like context variables.  If samples are
    still generating at its end, it records nothing.  In a rollout that never stops (`overlapping`)
    samples may go on: then the slowest is one of those that ended.
    """

    __slots__ = ("_begun", "_ended", "_open", "_outer", "overlapping")

    def __init__(self, *, overlapping: bool = False) -> None:
        self.overlapping = overlapping
        self._begun = 0
        self._ended: list[tuple[int, int]] = []
        """When each sample began and ended, nanoseconds of the monotonic clock."""
        self._open = True
        self._outer: Token[Batch | None] | None = None

    def __enter__(self) -> Batch:
        self._outer = _current.set(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if self._outer is not None:
                _current.reset(self._outer)
            self.close(failed=error is not None)
        except Exception as problem:
            swallow("the long tail of a rollout was not recorded", problem)

    @property
    def ended(self) -> int:
        """How many samples have ended."""
        return len(self._ended)

    def begin(self) -> int:
        """Count a sample; returns its start time."""
        self._begun += 1
        return time.monotonic_ns()

    def end(self, began: int) -> None:
        """Record that a sample has ended, useful or not."""
        if self._open and len(self._ended) < MAX_SAMPLES:
            self._ended.append((began, time.monotonic_ns()))

    def close(self, *, failed: bool = False) -> None:
        """End the batch; record nothing if it failed."""
        self._open = False
        count = len(self._ended)
        complete = count == self._begun
        if failed or count < 2 or not (complete or self.overlapping):
            return
        lasted = sorted(ended - began for began, ended in self._ended)
        usual = (lasted[(count - 1) // 2] + lasted[count // 2]) / 2
        if usual > 0:
            _api.scalar("rollout_tail", lasted[-1] / usual)
        first = min(began for began, _ in self._ended)
        ends = sorted(ended for _, ended in self._ended)
        if count > MANY and ends[-1] > first and not self.overlapping:
            few = ends[-((count - 1) // 10) - 1]  # from here on fewer than a tenth are left
            _api.scalar("rollout_tail_share", (ends[-1] - few) / (ends[-1] - first))


class Sample:
    """One sample of this task's batch; nothing without a batch.  Never raises."""

    __slots__ = ("_batch", "_began")

    def __enter__(self) -> Sample:
        self._batch = _current.get()
        if self._batch is not None:
            self._began = self._batch.begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._batch is not None:
            self._batch.end(self._began)
