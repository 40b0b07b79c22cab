"""The command that replays a site's captures."""

from __future__ import annotations

import json
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
    assert "1 captures, 0 of them wrong;" in printed


def test_an_error_of_slurm_itself_is_told_and_is_no_wrong_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scontrol_show_node.txt").write_text(NODE)
    error = {"description": "Unable to query JobId=17", "error": "Invalid job id specified"}
    (tmp_path / "rest_jobs.json").write_text(json.dumps({"jobs": [], "errors": [error]}))
    (tmp_path / "rest_nodes.json").write_text(json.dumps({"errors": [error]}))
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("an error of slurm's own: Unable to query JobId=17") == 2
    assert printed.endswith("1 captures, 0 of them wrong; 2 errors of others' own\n")


def test_gpus_per_socket_are_those_that_the_nodes_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slurm 24.05 to 25.11 count none in the job's TRES: here are two of one socket."""
    job = {
        "job_id": 7,
        "job_state": ["RUNNING"],
        "partition": "gpu",
        "nodes": "a1",
        "node_count": {"set": True, "infinite": False, "number": 1},
        "sockets_per_node": {"set": True, "infinite": False, "number": 2},
        "tres_alloc_str": "cpu=1,mem=512M,node=1,billing=1",
        "tres_per_socket": "gres/gpu:2",
        "gres_detail": ["gpu:h100:2(IDX:0-1),gpu:h200:0(IDX:)"],
    }
    other = job | {"job_id": 8, "tres_alloc_str": "gres/gpu=1", "tres_per_socket": ""}
    (tmp_path / "rest_jobs.json").write_text(json.dumps({"jobs": [job, other], "errors": []}))
    assert main([str(tmp_path)]) == 0
    assert re.search(r"GPUs of running jobs +3 +3\n", capsys.readouterr().out)


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
