"""The runner: what one collector does never harms another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

import stagewatch.core.runner as runner_module
from stagewatch.core.collector import Collector
from stagewatch.core.exposition import Samples
from stagewatch.core.runner import MAX_SHARE, SKIPPED, STUCK, SUCCESS, Job, Runner
from tests.core.runner_scene import Hangs, Scripted
from tests.waiting import wait_for


@pytest.fixture
def run() -> Iterator[Callable[..., Runner]]:
    """Runners over real threads."""
    runners: list[Runner] = []

    def start(interval: float = 0.02, **collectors: Collector) -> Runner:
        runner = Runner(Job(name, made, interval) for name, made in collectors.items())
        runners.append(runner)
        runner.start()
        return runner

    yield start
    for runner in runners:
        for job in runner.jobs.values():
            if isinstance(job.collector, Hangs):
                job.collector.release.set()
        runner.close()


def test_a_collector_that_computes_for_long_is_called_at_every_other_interval(
    run: Callable[..., Runner],
) -> None:
    interval = 0.4
    begun: list[float] = []

    class Costly(Collector):
        def collect(self) -> Samples:
            begun.append(time.monotonic())
            end = time.thread_time() + 2 * MAX_SHARE * interval
            while time.thread_time() < end:
                pass
            return Samples()

    run(interval, costly=Costly())
    wait_for(lambda: len(begun) == 3, "three calls")
    # The first may begin late; no later one begins before it is due.
    assert begun[1] >= begun[0] + 1.5 * interval
    assert begun[2] >= begun[0] + 3.5 * interval


def test_collectors_take_turns(run: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "TURN_SECONDS", 60.0)
    inside: list[object] = []
    most: list[int] = []

    class Overlaps(Collector):
        def collect(self) -> Samples:
            inside.append(self)
            time.sleep(0.003)
            most.append(len(inside))
            inside.remove(self)
            return Samples()

    run(0.001, one=Overlaps(), other=Overlaps(), third=Overlaps())
    wait_for(lambda: len(most) >= 50, "fifty calls")
    assert max(most) == 1


def test_a_stuck_collector_harms_no_other(run: Callable[..., Runner]) -> None:
    stuck, healthy = Hangs(), Scripted()
    runner = run(stuck=stuck, healthy=healthy)
    stuck.inside.wait()
    calls = healthy.calls
    wait_for(lambda: healthy.calls > calls + 10, "the other goes on")
    wait_for(lambda: runner.jobs["stuck"].fresh() is None, "its old data is dropped")
    assert runner.jobs["healthy"].fresh() is not None
    assert runner.ready()
    wait_for(lambda: (runner.health().value(STUCK, "stuck") or 0) > 0, "it is called stuck")
    assert runner.health().value(SUCCESS, "stuck") == 0
    assert (runner.health().value(SKIPPED, "stuck") or 0) > 10
    stuck.release.set()
    wait_for(lambda: runner.jobs["stuck"].fresh(), "it works again")
    assert runner.health().value(STUCK, "stuck") == 0


def test_closing_waits_neither_for_a_stuck_call_nor_for_a_stuck_close(
    run: Callable[..., Runner],
) -> None:
    class NeverCloses(Hangs):
        def close(self) -> None:
            self.release.wait()

    class RaisesOnClose(Scripted):
        def close(self) -> None:
            super().close()
            raise RuntimeError("already closed")

    stuck, broken, healthy = NeverCloses(), RaisesOnClose(), Scripted()
    runner = run(stuck=stuck, broken=broken, healthy=healthy)
    stuck.inside.wait()
    runner.close(timeout=0.5)  # returns at all: that of `stuck` would not before its release
    assert not stuck.release.is_set()
    assert (broken.closed, healthy.closed) == (1, 1)
    calls = healthy.calls
    assert not [thread for thread in threading.enumerate() if thread.name == "collect-healthy"], (
        calls
    )


def test_what_is_to_be_shown_for_long_outlasts_a_slow_run(run: Callable[..., Runner]) -> None:
    slow, healthy = Hangs(), Scripted()
    slow.shown_seconds = 600.0
    job = run(slow=slow, healthy=healthy).jobs["slow"]
    wait_for(job.fresh, "it has collected")
    slow.inside.wait()
    calls = healthy.calls
    wait_for(lambda: healthy.calls > calls + 10, "ten intervals")
    assert job.fresh() is not None
    slow.release.set()
