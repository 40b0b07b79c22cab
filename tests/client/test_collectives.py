"""Collectives that are compiled, and those of odd groups."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import stagewatch
from tests.client.hooking import needs, record


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
