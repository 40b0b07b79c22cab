"""One TOML file for all commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.core.config import read_file
from stagewatch.core.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "stagewatch.toml"


def refused(file: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_file(file, "node")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_each_command_reads_its_own_table(file: Path) -> None:
    file.write_text('[node]\nlisten = ":1"\ncollector.gpu.interval = "1s"\n[slurm]\nx = 1\n')
    assert read_file(file, "node") == {"listen": ":1", "collector.gpu.interval": "1s"}
    assert read_file(file, "report") == {}


def test_a_file_that_cannot_be_read(file: Path, tmp_path: Path) -> None:
    assert refused(file) == f"--config {file}: No such file or directory"
    assert "Is a directory" in refused(tmp_path)
