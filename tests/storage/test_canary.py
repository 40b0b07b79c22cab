"""The canary on healthy directories and on hostile ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stagewatch.core.children.helper import Helper
from stagewatch.core.exposition import Samples, render
from stagewatch.storage import canary
from stagewatch.storage.canary import CanaryCollector, CanaryOptions, job
from tests.waiting import wait_for

Start = Callable[[CanaryOptions], CanaryCollector]
MOUNTINFO = Path("/proc/self/mountinfo")
PHASES = {"statvfs", "open", "write", "fsync", "read", "unlink"}


@pytest.fixture
def start() -> Iterator[Start]:
    """Collectors that are closed with the test."""
    with ExitStack() as stack:

        def begin(options: CanaryOptions) -> CanaryCollector:
            helper = Helper({str(path): job(path, options) for path in options.mounts})
            collector = CanaryCollector(helper, mountinfo=MOUNTINFO)
            stack.callback(helper.close)
            return collector

        yield begin


def options(*mounts: Path, **changed: float) -> CanaryOptions:
    chosen = {"every": 0.1, "floor": 0, "large_bytes": 0} | changed
    return CanaryOptions(mounts=mounts, **chosen)


def wait_for_metric(collector: CanaryCollector, metric: canary.Metric) -> Samples:
    return wait_for(
        lambda: (out := collector.collect()) and metric in out.families and out, metric.name
    )


def test_every_phase_is_timed_and_nothing_is_left(start: Start, tmp_path: Path) -> None:
    out = wait_for_metric(start(options(tmp_path)), canary.SUCCESS)
    name = str(tmp_path)
    assert out.value(canary.SUCCESS, name) == 1
    assert {phase for _, phase in out.families[canary.SECONDS]} == PHASES
    assert out.value(canary.AVAILABLE, name) == pytest.approx(
        os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize, rel=0.1
    )
    assert out.value(canary.READ_ONLY, name) == 0
    assert b"True" not in render(out)
    wait_for(lambda: not list(tmp_path.iterdir()), "no file is left")


def test_where_little_is_free_nothing_is_written(start: Start, tmp_path: Path) -> None:
    out = wait_for_metric(start(options(tmp_path, floor=1 << 62)), canary.SKIPPED)
    assert out.value(canary.SKIPPED, str(tmp_path), "below_floor") == 1
    assert canary.SUCCESS not in out.families
    assert canary.AVAILABLE in out.families, "free space is shown all the same"
    assert {phase for _, phase in out.families[canary.SECONDS]} == {"statvfs"}


def canary_name(tmp_path: Path) -> Path:
    return tmp_path / f".stagewatch-canary-{os.uname().nodename}"


def test_the_file_of_a_killed_run_is_removed(start: Start, tmp_path: Path) -> None:
    canary_name(tmp_path).write_bytes(b"left over")
    wait_for_metric(start(options(tmp_path)), canary.SUCCESS)
    wait_for(lambda: not list(tmp_path.iterdir()), "no file is left")


def test_a_link_in_the_place_of_the_canary_is_not_followed(start: Start, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"untouched")
    (tmp_path / "here").mkdir()
    canary_name(tmp_path / "here").symlink_to(precious)
    out = wait_for_metric(start(options(tmp_path / "here")), canary.SUCCESS)
    assert out.value(canary.SUCCESS, str(tmp_path / "here")) == 1
    assert precious.read_bytes() == b"untouched"
    assert canary_name(tmp_path / "here").is_symlink()
