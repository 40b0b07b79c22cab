"""Checkpoints end to end, through the helper process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stagewatch.core.children.helper import Helper
from stagewatch.core.exposition import Samples
from stagewatch.storage import checkpoints
from stagewatch.storage.checkpoints import CheckpointsCollector, CheckpointsOptions, job, pattern
from tests.checkpoint.written import distributed
from tests.waiting import wait_for

Start = Callable[..., CheckpointsCollector]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(*directories: str, verify: bool = False) -> CheckpointsCollector:
            options = CheckpointsOptions(directories, every=0.1, verify=verify)
            helper = Helper({name: job(name, options) for name in directories})
            stack.callback(helper.close)
            return CheckpointsCollector(helper)

        yield begin


def wait_for_value(
    collector: CheckpointsCollector, metric: checkpoints.Metric, value: float, *labels: str
) -> Samples:
    return wait_for(
        lambda: (out := collector.collect()).value(metric, *labels) == value and out,
        f"{metric.name} {value}",
    )


def test_a_checkpoint_that_shrinks_is_seen_when_it_is_written(start: Start, tmp_path: Path) -> None:
    name = f"{tmp_path}/{{job}}"
    directory = tmp_path / "540"
    directory.mkdir()
    (directory / "step_9.pt").write_bytes(b"x" * 14_000)
    collector = start(name)
    wait_for_value(collector, checkpoints.SIZE, 14_000, name, "540")
    (directory / "step_10.pt.tmp").write_bytes(b"x" * 2_000)
    out = wait_for_value(collector, checkpoints.TEMPORARY, 1, name, "540")
    assert out.value(checkpoints.STEP, name, "540") == 9
    (directory / "step_10.pt.tmp").rename(directory / "step_10.pt")
    out = wait_for_value(collector, checkpoints.SIZE, 2_000, name, "540")
    assert out.value(checkpoints.PREVIOUS_SIZE, name, "540") == 14_000
    assert out.value(checkpoints.STEP, name, "540") == 10
    assert out.value(checkpoints.COMPLETE, name) == 1
    wait_for_value(collector, checkpoints.GROWING, 0, name, "540")


def test_a_checkpoint_that_lacks_a_shard_is_told_once_it_has_ceased_to_grow(
    start: Start, tmp_path: Path
) -> None:
    distributed(tmp_path / "540" / "step_9")
    name = f"{tmp_path}/{{job}}"
    collector = start(name, verify=True)
    wait_for_value(collector, checkpoints.LACKING, 0, name, "540")
    distributed(tmp_path / "540" / "step_10")
    (tmp_path / "540" / "step_10" / "__3_0.distcp").unlink()
    out = wait_for_value(collector, checkpoints.LACKING, 1, name, "540")
    assert out.value(checkpoints.STEP, name, "540") == 10
    lacks = "step_10/__3_0.distcp: 1 of 4 files that step_10/.metadata names"
    assert out.value(checkpoints.LACKS, name, "540", lacks) == 1


@pytest.mark.parametrize("refused", ["relative", "/a/../b", "/{job}/{job}", ""])
def test_odd_patterns_are_refused(refused: str) -> None:
    with pytest.raises(ValueError):
        pattern(refused)
