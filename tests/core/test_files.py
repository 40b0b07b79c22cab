from __future__ import annotations

import stat
from pathlib import Path

import pytest

from stagewatch.core.files import write_atomically


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_whole_with_the_mode_that_was_asked_for(
    tmp_path: Path, durable: bool
) -> None:
    file = tmp_path / "state.json"
    file.write_bytes(b"before")
    write_atomically(file, b"after", mode=0o644, durable=durable)
    assert file.read_bytes() == b"after"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    target = tmp_path / "state.json"
    target.mkdir()
    with pytest.raises(OSError):
        write_atomically(target, b"after")
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]
    assert target.is_dir()


def test_a_link_that_another_user_put_there_is_replaced_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"before")
    (tmp_path / "state.json").symlink_to(precious)
    write_atomically(tmp_path / "state.json", b"after")
    assert precious.read_bytes() == b"before"
    assert not (tmp_path / "state.json").is_symlink()
