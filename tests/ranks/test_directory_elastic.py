"""Ranks that begin again in a world of another size, as torchrun's do when a node is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.records import Life
from stagewatch.record import H_CREATED_WALL, H_RANK, H_WORLD_SIZE
from tests.records import patched, place
from tests.running import Python, Script

Begin = Callable[..., Script]
Leave = Callable[..., None]


@pytest.fixture
def directory(record_dir: Path) -> Iterator[RankDirectory]:
    proc = Procfs()
    with closing(RecordDirectory(record_dir, proc)) as records:
        yield RankDirectory(records, fresh_for=0.0)


@pytest.fixture
def killed(record_dir: Path, raw: bytes) -> Leave:
    """Leaves the record of a rank that was killed in a world of so many."""

    def leave(rank: int, world_size: int, created: int = 10) -> None:
        who = {H_RANK: rank, H_WORLD_SIZE: world_size, H_CREATED_WALL: created}
        place(record_dir, patched(raw, who), 1 + rank)

    return leave


@pytest.fixture
def begin(python: Python, record_dir: Path) -> Begin:
    def start(rank: int, world_size: int, role: str = "train") -> Script:
        return python.ready(
            """
            import sys, time
            import stagewatch
            stagewatch.init(
                sys.argv[3], job_id=540, rank=int(sys.argv[1]), world_size=int(sys.argv[2])
            )
            print("ready", flush=True)
            time.sleep(600)
            """,
            rank,
            world_size,
            role,
            STAGEWATCH_DIR=str(record_dir),
        )

    return start


def shown(directory: RankDirectory) -> list[tuple[str, int, Life]]:
    return [(rank.role, rank.rank, rank.life) for rank in directory.ranks()]


def test_numbers_that_the_smaller_world_has_not_are_no_dead_ranks(
    directory: RankDirectory, killed: Leave, begin: Begin
) -> None:
    """Two nodes of two; the other one is lost, and this one goes on with new numbers."""
    killed(2, 4)
    killed(3, 4)
    assert shown(directory) == [("train", 2, Life.GONE), ("train", 3, Life.GONE)]
    begin(0, 2)
    begin(1, 2)
    assert shown(directory) == [("train", 0, Life.ALIVE), ("train", 1, Life.ALIVE)]
    assert len(directory.look().records) == 4  # what they had done still counts


def test_a_helper_with_a_world_of_its_own_hides_no_dead_rank(
    directory: RankDirectory, killed: Leave, begin: Begin
) -> None:
    """An evaluation that a rank starts is no new world while the old one goes on."""
    killed(3, 4)
    begin(2, 4)
    begin(0, 1)
    assert shown(directory) == [
        ("train", 0, Life.ALIVE),
        ("train", 2, Life.ALIVE),
        ("train", 3, Life.GONE),
    ]
