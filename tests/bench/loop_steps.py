"""A bare training loop on a CPU, for `bench_loader`; prints CPU times of all threads.

Sixteen small modules and a DataLoader: about a millisecond a step, of which little is arithmetic.
"""

from __future__ import annotations

import json
import time

import torch
from torch import nn

STEPS = 1000
WARM_UP = 300


def main() -> None:
    """Train, and print when steps ended."""
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.DataLoader(torch.ones(8 * (STEPS + WARM_UP), 64), batch_size=8)
    ends = []
    for batch in data:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.process_time())
    print("\n" + json.dumps(ends[WARM_UP:]))


if __name__ == "__main__":
    main()
