"""Calls of tools: durations, errors, those in flight, from threads and tasks, under any name."""

from __future__ import annotations

import asyncio
import math
import random
import signal

import pytest

import stagewatch
from stagewatch.ranks.records import Calls
from tests.client.conftest import Client
from tests.client.conftest import Clock as Turned


@pytest.fixture
def clock(clock: Turned, monkeypatch: pytest.MonkeyPatch) -> Turned:
    monkeypatch.setattr("stagewatch.client._calls._read_clock", clock)
    return clock


def ended(calls: Calls) -> int:
    return sum(calls.durations)


def test_the_oldest_of_overlapping_calls_is_told_until_it_ends(
    clock: Turned, client: Client
) -> None:
    calls = [stagewatch.call("search") for _ in range(3)]
    for call in calls:
        clock.forward(10)
        call.__enter__()
    began = [11.0, 21.0, 31.0]
    shown = client.record().calls["search"]
    assert (shown.open, shown.oldest, ended(shown)) == (3, began[0], 0)
    for index, (open, oldest) in {0: (2, began[1]), 2: (1, began[1]), 1: (0, math.inf)}.items():
        clock.forward(1)
        calls[index].__exit__(None, None, None)
        shown = client.record().calls["search"]
        assert (shown.open, shown.oldest) == (open, oldest)
    assert ended(shown) == 3
    assert shown.seconds == (32 - 11) + (33 - 31) + (34 - 21)


def test_an_exception_counts_as_an_error_and_passes(client: Client) -> None:
    for error in (TimeoutError, ValueError):
        with pytest.raises(error), stagewatch.call("search"):
            raise error
    with pytest.raises(asyncio.CancelledError), stagewatch.call("search"):
        raise asyncio.CancelledError
    calls = client.record().calls["search"]
    assert (calls.errors, ended(calls), calls.open) == (2, 3, 0)


def test_tasks_that_overlap_and_are_cancelled_leave_none_open(client: Client) -> None:
    @stagewatch.call("environment")
    async def act(forever: asyncio.Event) -> None:
        await forever.wait()

    async def episodes() -> Calls:
        forever = asyncio.Event()
        tasks = [asyncio.create_task(act(forever)) for _ in range(50)]
        await asyncio.sleep(0)
        shown = client.record().calls["environment"]
        for task in tasks[::2]:
            task.cancel()
        forever.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return shown

    assert asyncio.run(episodes()).open == 50
    calls = client.record().calls["environment"]
    assert (calls.open, ended(calls), calls.errors) == (0, 50, 0)


def test_without_a_record_and_across_its_end_nothing_happens(client: Client) -> None:
    across = stagewatch.call("search")
    with across:
        stagewatch.close()
        with stagewatch.call("search"):
            pass
        stagewatch.init("train", job_id=540, rank=3, directory=client.directory)
    assert client.record().calls == {}
    with across:
        pass
    assert ended(client.record().calls["search"]) == 1


def test_a_time_out_that_interrupts_at_any_point_leaves_no_call_open(client: Client) -> None:
    class TimeOut(Exception):
        pass

    def interrupt(signum: int, frame: object) -> None:
        raise TimeOut

    before = signal.signal(signal.SIGALRM, interrupt)
    chosen = random.Random(0)
    interrupted = 0
    try:
        for _ in range(300):
            try:
                # Once more later: what it raises in a callback of the garbage collector, as
                # Hypothesis has one, Python drops.
                signal.setitimer(signal.ITIMER_REAL, chosen.uniform(1e-5, 3e-4), 10)
                while True:
                    with stagewatch.call("search"):
                        pass
            except TimeOut:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    with stagewatch.call("search"):  # the record is put in order when the next call begins or ends
        pass
    calls = client.record().calls["search"]
    assert interrupted == 300
    assert calls.open == 0
    assert ended(calls) > 0
