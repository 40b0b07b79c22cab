"""Threads: each has a lane, lanes are used again, and there may be more threads than lanes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import stagewatch
from stagewatch.record import LANES
from tests.client.conftest import Client


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_each_thread_has_its_own_stages_and_progress(client: Client) -> None:
    inside, done = threading.Event(), threading.Event()

    def rollout() -> None:
        with stagewatch.stage("rollout", step=2):
            inside.set()
            done.wait()

    thread = threading.Thread(target=rollout)
    with stagewatch.stage("train", step=1):
        thread.start()
        inside.wait()
        record = client.record()
        done.set()
        thread.join()
    assert [(lane.frames[0].stage, lane.step) for lane in record.lanes] == [
        ("train", 1),
        ("rollout", 2),
    ]
    assert record.open.stage == "train"


def test_a_beating_helper_thread_does_not_hide_a_wedged_training_thread(client: Client) -> None:
    stagewatch.heartbeat(step=1)
    before = client.record().training
    in_thread(lambda: [stagewatch.heartbeat(step=9) for _ in range(100)])
    assert client.record().training == before


def test_a_thread_that_ends_inside_a_stage_leaves_none_open_for_the_next(client: Client) -> None:
    def abandon() -> None:
        stagewatch.stage("rollout", step=5).__enter__()

    in_thread(abandon)
    in_thread(stagewatch.heartbeat)
    lane = client.record().lanes[1]
    assert lane.frames == ()
    assert lane.step is None


def test_threads_beyond_the_lanes_record_nothing_and_are_counted(client: Client) -> None:
    barrier = threading.Barrier(LANES + 4)
    all_done = threading.Barrier(LANES + 4)

    def work() -> None:
        barrier.wait()
        with stagewatch.stage("rollout"):
            stagewatch.heartbeat(1)
        stagewatch.scalar("reward", 0.5)
        all_done.wait()

    threads = [threading.Thread(target=work) for _ in range(LANES + 3)]
    for thread in threads:
        thread.start()
    barrier.wait()
    all_done.wait()
    record = client.record()
    for thread in threads:
        thread.join()
    assert len(record.lanes) == LANES  # this thread's, and those of seven others
    assert sum(record.totals["rollout"].durations) == LANES - 1
    assert record.dropped > 0
    assert record.scalars == {"reward": 0.5}


@pytest.mark.usefixtures("eager_switching")
def test_no_thread_loses_anothers_counts(client: Client) -> None:
    def work(number: int) -> None:
        for _ in range(2000):
            stagewatch.collective("world")
            stagewatch.scalar(f"scalar_{number}_{_ % 4}", number)
            with stagewatch.stage("rollout"), stagewatch.call(f"tool {_ % 20}"):
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = client.record()
    assert record.collectives == {"world": 12_000}
    assert len(record.scalars) == 24
    assert sum(record.totals["rollout"].durations) == 12_000
    assert sum(sum(calls.durations) for calls in record.calls.values()) == 12_000
    assert not any(calls.open for calls in record.calls.values())
