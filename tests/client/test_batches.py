"""The long tail of a rollout, by a clock that the test turns."""

from __future__ import annotations

import asyncio
import threading

import pytest

from stagewatch.client.hooks import batches
from stagewatch.client.hooks.batches import Batch, Sample
from tests.client.conftest import Client


class Seconds:
    """The monotonic clock of the batches."""

    now = 0.0

    def __call__(self) -> int:
        return int(self.now * 1e9)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    clock = Seconds()
    monkeypatch.setattr(batches.time, "monotonic_ns", clock)
    return clock


def generate(clock: Seconds, lengths: list[float]) -> None:
    """All samples begin at once, and end one after the other."""
    samples = [Sample() for _ in lengths]
    begun = clock.now
    for sample in samples:
        sample.__enter__()
    for length, sample in sorted(zip(lengths, samples, strict=True), key=lambda one: one[0]):
        clock.now = begun + length
        sample.__exit__(None, None, None)


def test_the_slowest_sample_and_the_time_in_which_few_are_left(
    client: Client, seconds: Seconds
) -> None:
    with Batch():
        generate(seconds, [10.0] * 18 + [30.0, 40.0])
    assert client.record().scalars == {
        "rollout_tail": 4.0,
        # From 30 s on one of twenty is left: fewer than a tenth of them, for 10 of 40 s.
        "rollout_tail_share": 0.25,
    }


def test_samples_of_tasks_and_threads_of_the_batch_count(client: Client) -> None:
    async def one() -> None:
        with Sample():
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(one(), one())

    loop = asyncio.new_event_loop()
    elsewhere = threading.Thread(target=loop.run_forever)
    elsewhere.start()
    with Batch():
        asyncio.run_coroutine_threadsafe(both(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    elsewhere.join()
    loop.close()
    assert client.record().scalars["rollout_tail"] >= 1.0
