"""`stagewatch checkpoint verify`, as a prolog calls it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stagewatch.cli import main
from tests.checkpoint import written
from tests.checkpoint.written import write


def test_what_lacks_is_told_and_exits_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = written.distributed(tmp_path / "step_10")
    (root / "__1_0.distcp").unlink()
    assert main(["checkpoint", "verify", str(tmp_path)]) == 3
    out = capsys.readouterr().out
    assert "is not whole; bad files: 1 " in out
    assert "  __1_0.distcp is missing: 1 of 4 files that .metadata names" in out
    assert main(["checkpoint", "verify", str(root), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["whole"], told["lacking"], told["faults"][0]["name"]) == (False, 1, "__1_0.distcp")


def test_a_pointer_to_nothing_is_not_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = written.deepspeed(tmp_path)
    assert main(["checkpoint", "verify", str(root)]) == 0
    assert "global_step10 is whole (5 files" in capsys.readouterr().out
    write(root / "latest", "global_step20")
    assert main(["checkpoint", "verify", str(root)]) == 3
    assert "global_step20 is missing: latest names it" in capsys.readouterr().out


def test_a_directory_without_a_checkpoint_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "verify", str(tmp_path)]) == 1
    assert "there is no checkpoint" in capsys.readouterr().err
    assert main(["checkpoint", "verify", str(tmp_path / "absent")]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_the_deadline_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where there would be thousands of ranks to be told."""
    write(tmp_path / "rank_999999.pt", written.torch_zip())
    write(tmp_path / "rank_0.pt", written.torch_zip())
    assert main(["checkpoint", "verify", str(tmp_path), "--deadline", "1ms"]) == 1
    assert "the deadline was passed" in capsys.readouterr().err


def test_links_of_a_cache_are_followed_to_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = written.hugging_face(tmp_path / "snapshot")
    blob = tmp_path / "blob"
    shard = root / "model-00001-of-00003.safetensors"
    shard.rename(blob)
    shard.symlink_to(blob)
    assert main(["checkpoint", "verify", str(root)]) == 0
    os.truncate(blob, 100)
    assert main(["checkpoint", "verify", str(root)]) == 3
    assert shard.name in capsys.readouterr().out


def test_names_of_others_are_printed_without_their_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a\x1b[31m\n.pt", b"")
    assert main(["checkpoint", "verify", str(tmp_path)]) == 3
    assert "\x1b" not in capsys.readouterr().out
