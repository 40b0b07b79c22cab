"""One rank of a gloo job that hangs: `python -m tests.client.jobs.hang SCENARIO INIT_FILE`.

A scenario is a function of this module. Every rank marks progress once when it is set up; whoever
is through waits for a signal.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import stagewatch
from stagewatch.core.processes import die_with_parent

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def mismatch(torch: Any, dist: Any) -> None:
    """Rank 2 broadcasts while the others reduce."""
    if RANK == 2:
        dist.broadcast(torch.ones(7), src=0)
    else:
        dist.all_reduce(torch.ones(5))


def sub_group(torch: Any, dist: Any) -> None:
    """Rank 1 skips the second all-reduce of its pair and goes on to the barrier of all."""
    pairs = [dist.new_group([0, 1], group_desc="tp"), dist.new_group([2, 3], group_desc="tp")]
    pair = pairs[RANK // 2]
    dist.all_reduce(torch.ones(1), group=pair)
    if RANK != 1:
        dist.all_reduce(torch.ones(1), group=pair)
    dist.barrier()


def backward(torch: Any, dist: Any) -> None:
    """Rank 1 skips its third backward and computes something else."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for step in range(3):
        loss = model(torch.ones(2, 4)).sum()
        if RANK == 1 and step == 2:
            signal.pause()
        loss.backward()


def pipeline(torch: Any, dist: Any) -> None:
    """Three stages pass a tensor on; the middle one receives twice and sends once."""
    value = torch.ones(3)
    for step in range(2):
        if RANK:
            dist.recv(value, src=RANK - 1)
        if RANK == 1 and step == 1:
            signal.pause()
        if RANK < SIZE - 1:
            dist.send(value, dst=RANK + 1)


def asynchronous(torch: Any, dist: Any) -> None:
    """Two launches, then rank 0 waits for the first; rank 1 launches one only and does not wait."""
    first = dist.all_reduce(torch.ones(3), async_op=True)
    if RANK == 0:
        dist.all_reduce(torch.ones(3), async_op=True).wait()
    else:
        first.wait()


def rendezvous(torch: Any, dist: Any) -> None:
    """Everybody is there: nothing more to do."""


SCENARIOS = (mismatch, sub_group, backward, pipeline, asynchronous, rendezvous)


def main(scenario: str, init_file: str) -> None:
    """Run until killed."""
    die_with_parent()
    stagewatch.init(job_id="hang")
    if scenario == "rendezvous" and RANK == 1:
        signal.pause()
    import torch
    import torch.distributed as dist

    stagewatch.watch_collectives(dist)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=RANK, world_size=SIZE)
    stagewatch.heartbeat(0)
    {function.__name__: function for function in SCENARIOS}[scenario](torch, dist)
    stagewatch.heartbeat(1)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
