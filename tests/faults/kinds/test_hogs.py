"""Injected contention: real hogs, where they were asked for, and none of them left."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from stagewatch.faults.kinds.hogs import available_memory
from stagewatch.faults.processes import Identity
from stagewatch.host.procfs import Procfs
from tests.faults.injecting import Injector
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(
    shutil.which("stress-ng") is None, reason="needs stress-ng (Debian package stress-ng)"
)


def busy(helpers: list[Identity]) -> float:
    """Seconds of processor time that they have had."""
    stats = [Procfs().stat(each.pid) for each in helpers]
    return sum(stat.user_seconds + stat.system_seconds for stat in stats if stat)


def resident(helpers: list[Identity]) -> int:
    """Bytes that they hold."""
    stats = [Procfs().stat(each.pid) for each in helpers]
    return max((stat.resident_bytes for stat in stats if stat), default=0)


def test_cpu_hogs_keep_the_core_of_the_target_busy_and_no_other(injector: Injector) -> None:
    core = min(os.sched_getaffinity(0))
    script = injector.hold("cpu", f"--target={core}", "--hogs=2", "--worker=rollout_8")
    (marker,) = injector.markers()
    assert (marker.fault_type, marker.target_worker, marker.end) == ("cpu", "rollout_8", None)
    wait_for(lambda: busy(injector.helpers()) > 0.2, "processor time of the hogs")
    workers = [each for each in injector.helpers() if os.sched_getaffinity(each.pid) == {core}]
    assert len(workers) >= 2
    script.process.send_signal(signal.SIGINT)
    assert "ended: SIGINT came" in script.finish(130)
    injector.gone()


def test_memory_is_held_and_given_back_when_the_time_is_over(injector: Injector) -> None:
    script = injector.start("memory", "--target=200MiB", "--for=4s")
    script.said("in force")
    wait_for(lambda: resident(injector.helpers()) > 190 << 20, "the memory to be held")
    assert "ended: its time is over" in script.finish(0)
    injector.gone()


def test_more_memory_than_the_floor_allows_is_refused(injector: Injector) -> None:
    asked = available_memory() - (512 << 20)
    said = injector.refused("inject", "memory", f"--target={asked}", "--for=5s", status=1)
    assert "are to be left (--leave)" in said
    assert not injector.markers()
