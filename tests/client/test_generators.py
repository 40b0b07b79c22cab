"""Stages around generators, by decorator and by hand."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator

import pytest

import stagewatch
from tests.client.conftest import Client
from tests.client.hooking import completed


def shown(client: Client) -> list[str]:
    return [frame.stage for frame in client.record().lanes[0].frames]


def test_a_decorated_generator_is_in_its_stage_until_its_end(client: Client) -> None:
    @stagewatch.stage("rollout")
    def samples() -> Iterator[list[str]]:
        for _ in range(2):
            yield shown(client)

    found = samples()
    assert shown(client) == []
    assert [next(found), next(found)] == [["rollout"], ["rollout"]]
    assert shown(client) == ["rollout"]
    assert next(found, None) is None
    assert shown(client) == []
    assert completed(client.record()) == {"rollout": 1}


def test_a_generator_that_nobody_finishes_closes_its_stage_when_it_goes(client: Client) -> None:
    @stagewatch.stage("rollout")
    def samples() -> Iterator[int]:
        yield 1
        yield 2

    found = samples()
    next(found)
    assert shown(client) == ["rollout"]
    del found
    gc.collect()
    assert shown(client) == []
    assert not client.record().failures


def test_a_decorated_async_generator(client: Client) -> None:
    closed: list[str] = []

    @stagewatch.stage("rollout")
    async def echo() -> AsyncIterator[str]:
        word = "ready"
        try:
            while word != "stop":
                try:
                    word = yield word
                except KeyError:
                    word = "thrown"
        finally:
            closed.append("closed")

    async def job() -> None:
        generator = echo()
        assert shown(client) == []
        assert await generator.__anext__() == "ready"
        assert shown(client) == ["rollout"]
        assert await generator.asend("sent") == "sent"
        assert await generator.athrow(KeyError()) == "thrown"
        with pytest.raises(StopAsyncIteration):
            await generator.asend("stop")
        assert shown(client) == []
        abandoned = echo()
        await abandoned.__anext__()
        await abandoned.aclose()
        failing = echo()
        await failing.__anext__()
        with pytest.raises(OSError):
            await failing.athrow(OSError("no"))

    asyncio.run(job())
    assert closed == ["closed"] * 3
    assert shown(client) == []
    assert completed(client.record()) == {"rollout": 3}
    assert dict(client.record().failures) == {("rollout", "OSError"): 1}
