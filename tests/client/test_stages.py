"""Stages: shown while open, counted when closed, and what leaves them by exception."""

from __future__ import annotations

import asyncio

import pytest

import stagewatch
from stagewatch.record import FRAMES
from tests.client.conftest import Client, Clock


def test_the_innermost_stage_is_the_open_one(clock: Clock, client: Client) -> None:
    with stagewatch.stage("train", step=1):
        assert client.record().lanes[0].progress == 1
        clock.forward(1)
        with stagewatch.stage("checkpoint"):
            (lane,) = client.record().lanes
            assert [frame.stage for frame in lane.frames] == ["train", "checkpoint"]
            assert [frame.step for frame in lane.frames] == [1, 1]
        frame = client.record().open
        assert (frame.stage, frame.substage, frame.step, frame.started) == ("train", "", 1, 1)
    assert client.record().open is None
    assert client.record().lanes[0].marks == 4


def test_gaps_count_for_the_innermost_stage(clock: Clock, client: Client) -> None:
    for _ in range(2):  # the first gap of each is left out, as it may hold a compiler
        with stagewatch.stage("train"):
            clock.forward(1)
            with stagewatch.stage("checkpoint"):
                clock.forward(100)
            clock.forward(2)
        clock.forward(50)
        stagewatch.heartbeat()
    totals = client.record().totals
    assert totals["train"].gap_seconds == pytest.approx(2 + 1 + 2)
    assert totals["checkpoint"].gap_seconds == pytest.approx(100)
    assert totals["idle"].gap_seconds == pytest.approx(50)


def test_an_exception_is_counted_once_however_many_stages_it_leaves(client: Client) -> None:
    with (
        pytest.raises(ValueError, match="loss is nan"),
        stagewatch.stage("train", step=4),
        stagewatch.stage("logprob"),
    ):
        raise ValueError("loss is nan")
    record = client.record()
    assert record.failures == {("logprob", "ValueError"): 1}
    assert sum(record.totals["train"].durations) == 1
    first = record.first_failure
    assert (first.stage, first.error, first.message, first.step) == (
        "logprob",
        "ValueError",
        "loss is nan",
        4,
    )


def test_as_decorator_of_a_function(client: Client) -> None:
    @stagewatch.stage("reward", step=2)
    def reward(n: int) -> int:
        """Doubles."""
        frame = client.record().open
        assert (frame.stage, frame.step) == ("reward", 2)
        return reward(n - 1) * 2 if n else 1

    assert reward(3) == 8
    assert (reward.__name__, reward.__doc__) == ("reward", "Doubles.")
    assert sum(client.record().totals["reward"].durations) == 4


def test_as_decorator_of_a_coroutine(client: Client) -> None:
    seen: list[str] = []

    @stagewatch.stage("rollout")
    async def rollout() -> int:
        await asyncio.sleep(0)
        frame = client.record().open
        seen.append(frame.stage if frame else "none")
        return 7

    assert asyncio.run(rollout()) == 7
    assert seen == ["rollout"]


def test_stages_deeper_than_the_record_are_timed_and_counted_as_dropped(
    clock: Clock, client: Client
) -> None:
    def nest(depth: int) -> None:
        with stagewatch.stage("train"):
            clock.forward(1)
            if depth > 1:
                nest(depth - 1)

    nest(FRAMES + 3)
    record = client.record()
    assert record.open is None
    assert record.dropped == 3
    assert sum(record.totals["train"].durations) == FRAMES + 3
    with stagewatch.stage("eval"):
        frame = client.record().open
    assert frame.stage == "eval"


def test_a_stage_that_began_later_is_innermost_in_whichever_place_it_lies(
    clock: Clock, client: Client
) -> None:
    """Tasks do not end in the order they began.  Places in the record are used again, so their
    order says nothing."""
    first, second, third = (stagewatch.stage(name) for name in ("rollout", "reward", "logprob"))
    first.__enter__()
    clock.forward(1)
    second.__enter__()
    first.__exit__(None, None, None)
    assert [frame.stage for frame in client.record().lanes[0].frames] == ["reward"]
    for _ in range(3):
        clock.forward(1)
        stagewatch.heartbeat()
    assert client.record().totals["reward"].gap_seconds == 3
    third.__enter__()
    found = client.record().open
    assert found.stage == "logprob"
    third.__exit__(None, None, None)
    second.__exit__(None, None, None)
    clock.forward(1)
    stagewatch.heartbeat()
    record = client.record()
    assert (record.lanes[0].frames, record.totals["rollout"].gap_seconds) == ((), 0)


def test_a_second_init_begins_a_new_record(client: Client) -> None:
    stagewatch.heartbeat(step=5)
    with stagewatch.stage("train"):
        stagewatch.init("rollout", job_id=541, rank=0, directory=client.directory)
    record = client.record()
    assert (record.job_id, record.role, record.rank) == ("541", "rollout", 0)
    assert record.lanes[0].marks == 0


def test_the_first_failure_is_kept_when_others_follow(client: Client) -> None:
    for stage, error in (
        ("train", SystemExit(1)),
        ("cleanup", TimeoutError("Request timeout")),
        ("cleanup", TimeoutError("Request timeout again")),
    ):
        with pytest.raises(type(error)), stagewatch.stage(stage):
            raise error
    record = client.record()
    assert record.failures == {("train", "SystemExit"): 1, ("cleanup", "TimeoutError"): 2}
    assert (record.first_failure.stage, record.first_failure.error) == ("train", "SystemExit")
    assert record.last_failure.message == "Request timeout again"
    assert record.first_failure.time <= record.last_failure.time
