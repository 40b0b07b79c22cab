"""Trains on a slow DataLoader, with no line of stagewatch's in the loop.

Prints, in nanoseconds since the first step was done, how long the record says that the training
thread has waited for batches, how long the data took, and how long the loop took without its model.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import stagewatch


def main() -> None:
    """Train, and report."""
    stagewatch.install("torch")
    import torch

    from tests.client.hooking import record

    class Slow(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> torch.Tensor:
            began = time.monotonic_ns()
            time.sleep(0.02)
            data.append(time.monotonic_ns() - began)
            return torch.ones(4)

    data: list[int] = []
    other: list[int] = []
    began = 0
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    for batch in torch.utils.data.DataLoader(Slow()):
        before = time.monotonic_ns()
        model(batch).sum().backward()
        time.sleep(0.05)
        optimizer.step()
        other.append(time.monotonic_ns() - before)
        began = began or time.monotonic_ns()
    ended = time.monotonic_ns()
    lane = record(Path(os.environ["STAGEWATCH_DIR"])).training
    report = {"data": sum(data[1:]), "not_model": ended - began - sum(other[1:])}
    print(json.dumps(report | {"waited": lane.batches if lane else None}))


if __name__ == "__main__":
    main()
