"""One rank of a gloo job: `python -m tests.client.jobs.gloo INIT_FILE EARLY LAPS`.

Every rank enters `LAPS` all-reduces, but rank `EARLY` leaves the loop one lap early and waits for
something else, as ranks with different clocks do; the others wait for it for ever.
"""

from __future__ import annotations

import os
import signal
import sys

import stagewatch
from stagewatch.core.processes import die_with_parent


def main(init_file: str, early: int, laps: int) -> None:
    """Run until killed: the job hangs."""
    die_with_parent()
    stagewatch.init(job_id="gloo")
    import torch
    import torch.distributed as dist

    stagewatch.watch_collectives(dist)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=size)
    # As a tensor-parallel job does: each rank is in one of two groups, both made by everyone.
    halves = [dist.new_group([0, 1], group_desc="tp"), dist.new_group([2, 3], group_desc="tp")]
    half = halves[rank // 2]
    value = torch.ones(1)
    for _ in range(3):
        dist.broadcast(value, src=2 * (rank // 2), group=half)
        dist.all_reduce(value, group=halves[1 - rank // 2])  # not a member: it does nothing
    with stagewatch.stage("train"):
        for lap in range(laps):
            stagewatch.heartbeat(lap)
            if rank == early and lap == laps - 1:
                signal.pause()
            dist.all_reduce(value, group=dist.group.WORLD)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
