"""The command that replays a site's captures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stagewatch.slurm.model import Records
from stagewatch.slurm.transport import text
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
    assert "1 captures, 0 of them wrong" in printed


CAPTURES = Path(__file__).parent / "fixtures" / "slurm" / "captures"


def test_our_own_captures_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """Tasks, reasons and users among them that were read wrongly before, of Slurm 22.05.8."""
    assert main([str(CAPTURES)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"jobs and tasks PENDING +62 +62\n", printed)
    assert "no reader" not in printed


def test_wrong_reading_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser that loses a node is found out."""
    parse = text.parse_nodes
    monkeypatch.setattr(text, "parse_nodes", lambda output: Records(parse(output).items[1:]))
    (tmp_path / "scontrol_show_node.txt").write_text(NODE * 3)
    assert main([str(tmp_path)]) == 1
    assert re.search(r"nodes DRAIN +2 +3   DIFFERS", capsys.readouterr().out)
