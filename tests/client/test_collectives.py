"""Counting the entries into collectives, over real process groups."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import stagewatch
from stagewatch.core.processes import Children
from stagewatch.ranks.records import RankRecord
from tests.client.hooking import ROOT, needs, record, records
from tests.waiting import wait_for

RANKS, LAPS, EARLY = 4, 6, 2


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Any]:
    """`torch.distributed` with a gloo group of this process alone."""
    needs("torch")
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    yield dist
    dist.destroy_process_group()


def test_a_rank_that_leaves_early_is_behind(tmp_path: Path) -> None:
    needs("torch")
    (directory := tmp_path / "ranks").mkdir()
    with Children() as children:
        for rank in range(RANKS):
            environ = os.environ | {
                "STAGEWATCH_DIR": str(directory),
                "PYTHONPATH": f"{ROOT / 'exporters'}{os.pathsep}{ROOT}",
                "RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                "OMP_NUM_THREADS": "1",
            }
            command = [sys.executable, "-m", "tests.client.jobs.gloo", f"{tmp_path}/rendezvous"]
            children.start(
                [*command, str(EARLY), str(LAPS)], environ=environ, log=tmp_path / f"{rank}.log"
            )

        def hung() -> list[RankRecord]:
            found = sorted(records(directory), key=lambda found: found.rank)
            done = [
                found.collectives.get("world") == LAPS - (found.rank == EARLY) for found in found
            ]
            return found if len(done) == RANKS and all(done) else []

        found = wait_for(hung, f"the hang; see the logs in {tmp_path}", 120)
        for peer in found:
            assert peer.open is not None and peer.open.stage == "train"
    sequences = {peer.rank: dict(peer.collectives) for peer in found}
    first, second = (set(sequences[rank]) - {"world", "init"} for rank in (0, 2))
    # Each half is one group with one name on both of its ranks, and not that of the other half.
    assert first.isdisjoint(second)
    for rank, half in ((0, first), (1, first), (2, second), (3, second)):
        (name,) = half
        assert name.startswith("tp:")
        assert sequences[rank] == {"init": 1, "world": LAPS - (rank == EARLY), name: 3}


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_compiled_code_still_compiles_whole(directory: Path, alone: Any) -> None:
    import torch

    stagewatch.init()
    stop = stagewatch.watch_collectives(alone)

    def reduce(value: torch.Tensor) -> torch.Tensor:
        doubled = value * 2
        alone.all_reduce(doubled)
        return doubled + 1

    compiled = torch.compile(reduce, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1)).item() == 3
    stop()


def test_without_a_record_and_with_odd_groups_the_collective_still_runs(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class ProcessGroup:
        """As PyTorch's, but for what a group calls itself."""

        def __init__(self, name: object) -> None:
            self._name = name
            self.group_desc = "undefined"

        @property
        def group_name(self) -> object:
            if self._name is None:
                raise RuntimeError("destroyed")
            return self._name

        def size(self) -> int:
            return 4

        def allreduce(self, tensors: object, options: object = None) -> object:
            return tensors

    module: Any = ModuleType("somebodys_distributed")
    module.ProcessGroup, module._world = ProcessGroup, SimpleNamespace(default_pg=0, pg_names={})
    allreduce = ProcessGroup.allreduce
    stop = stagewatch.watch_collectives(module)
    assert ProcessGroup("early").allreduce(1) == 1  # no record
    stagewatch.init()
    with caplog.at_level(logging.WARNING, "stagewatch"):
        for name in (None, None, [], -100):
            assert ProcessGroup(name).allreduce(5) == 5
    assert ProcessGroup("named").allreduce(6, None) == 6
    assert dict(record(directory).collectives) == {"early": 1, "named": 1}
    assert len(caplog.records) == 1
    stop()
    assert ProcessGroup.allreduce is allreduce
