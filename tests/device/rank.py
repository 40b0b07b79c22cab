"""A rank that reduces on a device with others, several of which may share one GPU.

Arguments: steps in all, what happens, and in which step.  Prints each step that it has done.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as distributed

import stagewatch
from tests.device import GPU_BUSY, NEVER_CALLS, VICTIM

ELEMENTS = 1 << 18
FOR_EVER = 1 << 62
"""Cycles of a kernel that only counts them."""


def main() -> None:
    """Train."""
    steps, what, at = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    rank, device = int(os.environ["RANK"]), os.environ["DEVICE"]
    stagewatch.init("train")
    distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    if os.environ.get("DEBUG_SERVER"):
        from torch.distributed.debug import start_debug_server

        start_debug_server()
    values = torch.ones(ELEMENTS, device=device)
    begun = time.monotonic()
    for step in range(1, steps + 1):
        struck = step == at and rank == VICTIM
        with stagewatch.stage("train", step=step):
            if struck and what == NEVER_CALLS:
                time.sleep(86400)
            if struck and what == GPU_BUSY:
                torch.cuda._sleep(FOR_EVER)
            distributed.all_reduce(values)
            if device == "cuda":
                torch.cuda.synchronize()
        if step == steps // 10:
            begun = time.monotonic()
        if steps < 100:
            time.sleep(0.5)
        print(step, flush=True)
    print(f"{(time.monotonic() - begun) / (steps - steps // 10) * 1e6:.1f} us a step", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
