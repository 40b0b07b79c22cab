"""A rank of a job over PyTorch's gloo; the arguments are those of `tests.lab.rank`.

Its all-reduce is real, and counted by watching torch.distributed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as distributed

import stagewatch
from stagewatch.core.processes import die_with_parent


def main(directory: Path, rank: int, size: int, options: dict[str, str]) -> None:
    """Train until told to wait before an all-reduce."""
    die_with_parent()
    torch.set_num_threads(1)
    stagewatch.init(rank=rank, world_size=size, **options)
    stagewatch.watch_collectives(distributed)
    distributed.init_process_group(
        "gloo", init_method=f"file://{directory}/rendezvous", rank=rank, world_size=size
    )
    order = directory / f"order.{rank}"
    step = 0
    while True:
        step += 1
        with stagewatch.stage("train", step=step):
            gradient = torch.ones(1000) * rank
            if order.exists():
                os.read(os.pipe()[0], 1)
            distributed.all_reduce(gradient)
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
