"""PyTorch's DistributedDataParallel on gloo, whose ranks read their batches from a DataLoader.

The fault: one rank has a batch less, and writes its results while the others are in backward; or,
with `--loader`, a worker of its loader never comes back from a sample.
"""

from __future__ import annotations

import sys
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import stagewatch
from tests.hangbench.programs.part import Part

LENGTH = 1000


class Samples(Dataset[torch.Tensor]):
    """Samples, one of which takes its time."""

    def __init__(self, slow: int, seconds: float) -> None:
        self._slow, self._seconds = slow, seconds

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self._slow:
            time.sleep(self._seconds)
        return torch.ones(64)


def main() -> None:
    """Train."""
    loader = "--loader" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--loader"]
    part = Part()
    given = part.given
    torch.set_num_threads(1)
    part.form_group()
    mine = given.rank == part.process
    seconds = 86400.0 if given.fault else given.pause
    samples = Samples(given.at + 3 if loader and mine else -1, seconds)
    batches = iter(DataLoader(samples, batch_size=1, num_workers=2 if loader else 0))
    model = DistributedDataParallel(torch.nn.Linear(64, 1))
    while part.step():
        struck = part.struck()
        with stagewatch.stage("train"):
            batch = next(batches)
            time.sleep(0.3)
            if struck and not loader:
                break_off(seconds)
            model(batch).sum().backward()


def break_off(seconds: float) -> None:
    """Write results instead of going on."""
    with stagewatch.stage("eval"):
        time.sleep(seconds)


if __name__ == "__main__":
    main()
