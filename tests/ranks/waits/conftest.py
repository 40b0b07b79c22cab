"""Programs of several real processes, and looks at what they wait for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import psutil
import pytest

from stagewatch.ranks.waits.look import Waits
from stagewatch.ranks.waits.model import State, Waiting
from tests.ranks.waits.programs import Program
from tests.running import Python
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


@pytest.fixture
def program(python: Python) -> Iterator[Callable[..., Program]]:
    """Starts programs that end with all of their processes."""
    started: list[int] = []

    def start(code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> Program:
        found = Program(python(code, *arguments, prefix=prefix))
        started.append(found.script.pid)
        return found

    yield start
    for group in started:
        while members := _members(group):
            for one in members:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            time.sleep(0.01)


def _members(group: int) -> list[psutil.Process]:
    """The processes of a group, but for multiprocessing's tracker, which ends by itself after it
    has removed the semaphores that they leave."""
    found = []
    for one in psutil.process_iter(["cmdline", "status"]):
        with suppress(ProcessLookupError):
            ended = one.info["status"] == psutil.STATUS_ZOMBIE
            tracks = any("resource_tracker" in word for word in one.info["cmdline"] or ())
            if os.getpgid(one.pid) == group and not (ended or tracks):
                found.append(one)
    return found
