"""Where no record can be made, the trainer goes on: one warning, no exception."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import stagewatch
from stagewatch.record import RECORD_SIZE

pytestmark = pytest.mark.usefixtures("warned")


@pytest.fixture
def tiny_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A mounted tmpfs with room for half a record; unmounted lazily, whatever still uses it."""
    directory = tmp_path / "tiny"
    directory.mkdir()
    size = f"size={RECORD_SIZE // 2 // 4096 * 4096},mode=1777"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", directory], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


def use_everything(directory: Path) -> None:
    stagewatch.init("train", directory=directory)
    with stagewatch.stage("rollout", step=1):
        stagewatch.heartbeat(2)
        stagewatch.scalar("reward", 0.5)
        stagewatch.collective("world")
    with pytest.raises(ZeroDivisionError), stagewatch.stage("train"):
        raise ZeroDivisionError
    stagewatch.close()


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.exc_info is None
    return record.getMessage()


def test_no_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        use_everything(tmp_path / "absent")
    message = warnings(caplog)
    assert "the agent will not see this rank" in message
    assert str(tmp_path / "absent") in message
    assert not (tmp_path / "absent").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_full_tmpfs(tiny_tmpfs: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A mapped file without its space reserved would end the trainer with SIGBUS at a write."""
    use_everything(tiny_tmpfs)
    assert "No space left on device" in warnings(caplog)
    assert list(tiny_tmpfs.iterdir()) == []


def test_without_init_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    with stagewatch.stage("rollout", step=1):
        stagewatch.heartbeat()
        stagewatch.scalar("reward", 1)
        stagewatch.collective()
        stagewatch.replicated("grad_norm", 1)
    stagewatch.close()
    assert caplog.records == []


def test_beginning_again_and_again_leaks_no_descriptor(record_dir: Path) -> None:
    def descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    stagewatch.init(directory=record_dir)
    before = descriptors()
    for _ in range(20):
        stagewatch.init(directory=record_dir)
    stagewatch.close()
    assert descriptors() <= before + 1  # a map keeps one until it is collected
