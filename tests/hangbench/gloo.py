"""Communication over PyTorch's gloo, counted by watching `torch.distributed`."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed

import stagewatch
from tests.hangbench.meeting import Board, Meeting
from tests.hangbench.shape import WORLD, Shape

_FOR_EVER = datetime.timedelta(days=1)


class Gloo:
    """One process's part in the communication of its job."""

    def __init__(
        self, shape: Shape, directory: Path, board: Board, rank: int, world: int, generation: int
    ) -> None:
        torch.set_num_threads(1)
        self._shape, self.rank, self.world = shape, rank, world
        self._store = f"file://{directory}/rendezvous.{generation}"
        self.aside = Meeting(shape, directory, board, rank, world, generation)
        """For what is not communicated over gloo."""
        self._groups: dict[str, Any] = {}
        self._pending: list[Any] = []
        self._model: Any = None
        stagewatch.watch_collectives(distributed)

    def close(self) -> None:
        """Go away."""
        distributed.destroy_process_group()
        self.aside.close()

    def begin(self) -> None:
        """Form the world and its groups."""
        distributed.init_process_group(
            "gloo",
            init_method=self._store,
            rank=self.rank,
            world_size=self.world,
            timeout=_FOR_EVER,
        )
        self._groups = {WORLD: None}
        for name, lists in sorted(self._shape.groups.items()):
            for ranks in lists:
                there = [rank for rank in ranks if rank < self.world]
                group = distributed.new_group(there, timeout=_FOR_EVER, group_desc=name)
                if self.rank in there:
                    self._groups[name] = group

    def leave(self, gone: list[int]) -> None:
        """Meet all but those that are gone, to form another generation."""
        self.aside.leave(gone)

    def collective(self, group: str, op: str, elements: int) -> None:
        """Meet the other members of the group."""
        self._start(group, op, elements, False)

    def begin_async(self, group: str, op: str, elements: int) -> None:
        """Enter without waiting."""
        self._pending.append(self._start(group, op, elements, True))

    def wait_oldest(self) -> None:
        """Wait for the oldest of those."""
        self._pending.pop(0).wait()

    def oldest_is_complete(self) -> bool:
        """Whether waiting for it would take no time."""
        return bool(self._pending[0].is_completed())

    def send(self, peer: int) -> None:
        """Send a message."""
        distributed.send(torch.ones(1000), peer)

    def receive(self, peer: int) -> None:
        """Wait for a message."""
        distributed.recv(torch.empty(1000), peer)

    def ddp(self, branch: bool) -> None:
        """A training step of a small model, a part of which a branch leaves out."""
        if self._model is None:
            self._model = torch.nn.parallel.DistributedDataParallel(_TwoParts())
        self._model(torch.ones(8, 64), branch).sum().backward()

    def _start(self, group: str, op: str, elements: int, later: bool) -> Any:
        into = self._groups[group]
        size = distributed.get_world_size(into)
        more = {"group": into, "async_op": later}
        mine = torch.ones(elements)
        if op == "barrier":
            return distributed.barrier(**more)
        if op == "broadcast":
            return distributed.broadcast(
                mine, distributed.get_global_rank(into or distributed.group.WORLD, 0), **more
            )
        if op == "all_gather":
            return distributed.all_gather(
                [torch.empty(elements) for _ in range(size)], mine, **more
            )
        if op == "reduce_scatter":
            whole = [torch.ones(elements) for _ in range(size)]
            return distributed.reduce_scatter(mine, whole, **more)
        if op == "all_to_all":
            return distributed.all_to_all_single(
                torch.empty(elements * size), torch.ones(elements * size), **more
            )
        return distributed.all_reduce(mine, **more)


class _TwoParts(torch.nn.Module):
    """A model of which one part may stay unused."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, batch: torch.Tensor, branch: bool) -> torch.Tensor:
        """All of it, or without the second part."""
        result: torch.Tensor = self.first(batch)
        return result if branch else self.second(result)
