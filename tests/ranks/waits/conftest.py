"""Programs of several real processes, and looks at what they wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from stagewatch.ranks.waits.look import Waits
from stagewatch.ranks.waits.model import State, Waiting
from tests.waiting import wait_for

Settled = Callable[..., Waiting]


class Looking(Waits):
    """Waits for the answer."""

    def look(self, *pids: Iterable[int], **more: Any) -> Waiting:
        self.ask(*pids, **more)
        waiting = wait_for(self.answer, "the kernel has been asked")
        assert waiting
        return waiting


@pytest.fixture(scope="session")
def waits() -> Iterator[Looking]:
    """Takes looks that are little apart."""
    found = Looking(apart=0.3)
    yield found
    found.close()


@pytest.fixture
def settled(waits: Looking) -> Settled:
    """Looks at processes until something holds and they are in these states; returns that look."""

    def look(
        *pids: int,
        until: Callable[[Waiting], object] = lambda _: True,
        states: Mapping[int, State] | None = None,
    ) -> Waiting:
        last: list[Waiting] = []

        def holds() -> bool:
            last[:] = [waits.look(pids)]
            is_as = {pid: one.state for pid, one in last[0].processes.items()}
            return bool(until(last[0])) and (states or {}).items() <= is_as.items()

        try:
            wait_for(holds, "the processes wait as they should", 30.0)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last[0]}") from None
        return last[0]

    return look
