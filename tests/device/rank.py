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
from tests.device import BAD_ADDRESS, GPU_BUSY, NEVER_CALLS, NO_MEMORY, VICTIM

ELEMENTS = 1 << 18
FOR_EVER = 1 << 62
"""Cycles of a kernel that only counts them."""


def main() -> None:
    """Train."""
    steps, what, at = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    rank, device = int(os.environ["RANK"]), os.environ["DEVICE"]
    stagewatch.init("train")
    # Ranks of one host may not share a GPU; those of several may, over the network.
    os.environ |= {"NCCL_HOSTID": f"host-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
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
            if struck and what == NO_MEMORY:
                torch.empty(1 << 45, device=device)
            if struck and what == BAD_ADDRESS:
                write_outside()
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


def write_outside() -> None:
    """Have the GPU write where nothing is mapped (XID 31)."""
    import cupy

    cupy.RawKernel('extern "C" __global__ void stray(char *at) { *at = 1; }', "stray")(
        (1,), (1,), (cupy.uint64(1 << 46),)
    )
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
