"""What `inspect` takes for a rank of the node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import H_CLOSED, H_START_TICKS
from stagewatch.verdict.facts import RankFacts, observe
from tests.records import patched, place, real_record


@pytest.fixture
def raw(tmp_path: Path) -> bytes:
    draft = tmp_path / "draft-of-one"
    draft.mkdir()
    return patched(real_record(draft), {H_START_TICKS: 1})


@pytest.fixture
def directory(record_dir: Path, tmp_path: Path) -> Iterator[RankDirectory]:
    proc = Procfs(tmp_path)
    with closing(RecordDirectory(record_dir, proc)) as records:
        yield RankDirectory(records)


def look(directory: RankDirectory, proc: Path) -> list[RankFacts]:
    return observe(directory, Procfs(proc), looks=1, pause=0.0)


def test_a_rank_that_ended_well_is_none_any_more(
    directory: RankDirectory, record_dir: Path, tmp_path: Path, raw: bytes
) -> None:
    place(record_dir, patched(raw, {H_CLOSED: 1}))
    assert look(directory, tmp_path) == []


def test_a_killed_rank_is_gone_with_its_first_failure(
    directory: RankDirectory, record_dir: Path, tmp_path: Path, raw: bytes
) -> None:
    place(record_dir, raw)
    (found,) = look(directory, tmp_path)
    assert (found.rank, found.wait_class, found.state) == (3, WaitClass.GONE, "-")
    assert (found.stage, found.substage) == ("other", "broadcast")
    assert found.first_failure == "MemoryError in train"
