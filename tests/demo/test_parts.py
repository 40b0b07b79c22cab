"""The demo's parts by themselves: its board, its Prometheus, and what cleans up after it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from stagewatch.core.errors import StagewatchError
from stagewatch.demo.prometheus import prometheus_command
from stagewatch.demo.sync_stall import DemoCluster


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on the PATH; empty."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def program(path: Path, name: str, script: str) -> None:
    """A program on the PATH, written in shell."""
    file = path / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_the_distributions_package_is_fetched_once_and_unpacked(path: Path, tmp_path: Path) -> None:
    """With stand-ins for apt-get, which knows the package after an update, and dpkg-deb."""
    log = tmp_path / "log"
    for name, script in {
        "apt-get": f'echo "$@" >> {log}; [ "$1" = update ] && : > {tmp_path}/updated; '
        f'[ "$1" = download ] && [ -e {tmp_path}/updated ] && : > prometheus_1_amd64.deb',
        "dpkg-deb": 'PATH=/bin:/usr/bin; mkdir -p "$3/usr/bin"; : > "$3/usr/bin/prometheus"',
    }.items():
        program(path, name, script)
    if os.geteuid() != 0:
        program(path, "sudo", 'shift; exec "$@"')
    command = [str(tmp_path / "cache/prometheus/usr/bin/prometheus")]
    assert prometheus_command(tmp_path / "cache") == command
    assert prometheus_command(tmp_path / "cache") == command
    assert log.read_text().splitlines() == ["download prometheus", "update", "download prometheus"]


def test_a_demo_that_cannot_begin_leaves_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    with pytest.raises(StagewatchError, match="no Prometheus: install it"):
        DemoCluster(cache=tmp_path / "cache")
    assert list((tmp_path / "tmp").iterdir()) == []
