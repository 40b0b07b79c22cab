"""The command that replays a site's captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compatibility.__main__ import main

NODE = "NodeName=h1 CPUTot=8 Gres=gpu:h200:8 State=IDLE+DRAIN Partitions=a BootTime=7\n"


def test_capture_is_counted_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the parsers read stands beside what a plain count of the same bytes gives."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "scontrol_show_node.txt").write_text(NODE * 3)
    (tmp_path / "notes.md").write_text("what we run")
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "notes.md: no reader takes a file of this name" in printed
    assert "site/scontrol_show_node.txt (slurm)" in printed
    assert printed.endswith("1 captures, 0 of them wrong\n")


def test_capture_that_is_not_understood_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the error, so that it can be sent to us as it is."""
    (tmp_path / "scontrol_show_nodes.txt").write_text("slurm_load_node error: nobody there\n")
    assert main([str(tmp_path)]) == 1
    assert "NOT READ: SourceError" in capsys.readouterr().out


def test_directory_without_captures_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing replayed is not the same as nothing wrong."""
    assert main([str(tmp_path)]) == 1
    assert main([str(tmp_path / "absent")]) == 2
    assert "usage" in capsys.readouterr().err
