"""What `stagewatch inspect` says of processes that may be ranks and that it may not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.inspect.command import _say_unseen
from stagewatch.ranks.directory import Census

HIDDEN = Census(denied=frozenset({1, 2}))


def test_who_sees_no_rank_is_told_what_may_hide_one(capsys: pytest.CaptureFixture[str]) -> None:
    _say_unseen(HIDDEN, Path("/run"), own=False)
    assert capsys.readouterr().err.startswith("2 processes of other users cannot be read: ")


def test_a_user_who_sees_ranks_of_their_own_is_not_told_of_all_processes_of_root(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _say_unseen(HIDDEN, Path("/run"), own=True)
    assert not capsys.readouterr().err
