"""A source keeps its last good reading, backs off, and never has two fetches under way."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from stagewatch.core.errors import NoData, SourceError
from stagewatch.slurm.cluster import MAX_BACKOFF, Source
from tests.fake_clock import Clock
from tests.waiting import wait_for


class Server:
    """Answers with a number, or an error that is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None

    def __call__(self, timeout: float) -> int:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.asked


@pytest.fixture
def server() -> Server:
    """What is asked."""
    return Server()


def make(server: Callable[[float], int], clock: Clock, **options: float) -> Source[int]:
    """A source with a time-out of 10 s."""
    return Source("jobs", server, timeout=10, clock=clock, wall=lambda: clock() + 1e9, **options)


def test_source_that_keeps_failing_is_left_alone_for_longer_and_longer(
    server: Server, clock: Clock
) -> None:
    """The first failure is tried again at once; the error stays the same, so it is logged once."""
    source = make(server, clock)
    server.error = SourceError("no controller")
    said = set()
    for _ in range(200):
        with pytest.raises(SourceError) as caught:
            source.refresh()
        said.add(str(caught.value))
        clock.now += 1
    assert said == {"no controller"}
    assert 4 <= server.asked <= 8
    server.error = None
    clock.now += MAX_BACKOFF
    assert source.refresh() == server.asked
    assert source.failure is None
    before = server.asked
    source.refresh()
    assert server.asked == before + 1


def test_interval_and_phase_spread_requests(server: Server, clock: Clock) -> None:
    """Asked for often, it asks on its own grid."""
    source = make(server, clock, interval=30, phase=15)
    asked = []
    for second in range(0, 120, 5):
        clock.now = 1000.0 + second
        try:
            source.refresh()
        except NoData:
            assert second < 15
        asked.append((second, server.asked))
    changes = [
        second for (second, n), (_, before) in zip(asked[1:], asked, strict=False) if n > before
    ]
    assert changes == [15, 45, 75, 105]


class Slow:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.entered, self.leave = threading.Event(), threading.Event()

    def __call__(self, timeout: float) -> int:
        self.asked += 1
        self.entered.set()
        self.leave.wait(60)
        return 7


def test_at_most_one_fetch_is_under_way() -> None:
    """A second caller waits in vain for as long as a fetch may take; the status does not wait."""
    slow = Slow()
    source = Source("jobs", slow, timeout=0.1)
    thread = threading.Thread(target=source.refresh)
    thread.start()
    try:
        assert slow.entered.wait(60)
        with pytest.raises(SourceError, match="still under way"):
            source.refresh()
        assert source.response is None
    finally:
        slow.leave.set()
        thread.join(60)
    assert wait_for(lambda: source.reading, "the reading").data == 7
    assert slow.asked == 1


def test_who_comes_while_a_fetch_is_under_way_shares_its_data() -> None:
    """Whoever began it; a reader that needs it only beside its own does not wait."""
    slow = Slow()
    source = Source("jobs", slow, timeout=60, interval=3600)
    assert source.keep_fresh() is None
    found: list[int] = []
    readers = [threading.Thread(target=lambda: found.append(source.refresh())) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        assert slow.entered.wait(60)
        assert source.keep_fresh() is None
    finally:
        slow.leave.set()
        for reader in readers:
            reader.join(60)
    assert found == [7, 7, 7]
    assert slow.asked == 1
    assert (reading := source.keep_fresh()) and reading.data == 7


def test_failure_keeps_the_last_good_reading(server: Server, clock: Clock) -> None:
    """And says that it failed, and why."""
    source = make(server, clock)
    source.refresh()
    server.error = SourceError("no controller")
    with pytest.raises(SourceError, match="no controller"):
        source.refresh()
    assert str(source.failure) == "no controller"
    assert source.reading.data == 1
