"""One rank of a data-parallel job over gloo, in which one rank may compute wrongly.

`python -m tests.client.jobs.replicas INIT_FILE WHAT RANK STEP STEPS EVERY SEED KIND`: at STEP a
bit of WHAT (weights, gradient, reduced, optimizer, nonfinite, nothing) flips in RANK.  Each check
goes to standard output, as a line with step, what, and its value.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import stagewatch
from stagewatch.client import _api
from stagewatch.core.processes import die_with_parent
from stagewatch.ranks.records import parse


def main(
    init_file: str, what: str, odd: int, at: int, steps: int, every: int, seed: int, kind: str
) -> None:
    """Train; the bits of all ranks are the same unless one is flipped."""
    die_with_parent()
    stagewatch.init("train", job_id="replicas")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=size)
    torch.manual_seed(7 + seed)
    dtype = getattr(torch, kind)
    layers = (
        torch.nn.Linear(16, 64),
        torch.nn.GELU(),
        torch.nn.LayerNorm(64),
        torch.nn.Linear(64, 4),
    )
    plain = torch.nn.Sequential(*layers).to(dtype)
    model = torch.nn.parallel.DistributedDataParallel(plain)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    stagewatch.watch_replicas(model, optimizer, every=every)
    torch.manual_seed(size * seed + rank)
    weight = plain[0].weight
    for step in range(1, steps + 1):
        mine = rank == odd and step == at
        inputs = torch.randn(8, 16, dtype=dtype)
        if mine and what == "nonfinite":
            inputs[3, 5] = float("nan")
        loss = model(inputs).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        if mine and what == "reduced":
            flip(weight.grad)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        stagewatch.replicated("grad_norm", norm, step=step)
        optimizer.step()
        if mine and what == "weights":
            flip(weight)
        if mine and what == "optimizer":
            flip(optimizer.state[weight]["exp_avg"])
        if step % every == 0:
            tell(step)
    dist.destroy_process_group()


def flip(tensor: Any) -> None:
    """One bit of one number, the lowest of its exponent."""
    import torch

    words = (
        tensor.detach().view(-1).view(torch.int16 if tensor.element_size() == 2 else torch.int32)
    )
    words[11] ^= 1 << (7 if tensor.element_size() == 2 else 23)


def tell(step: int) -> None:
    """The checks that this rank's record holds now."""
    recorder = _api._recorder
    checks = parse(recorder.path.read_bytes()).replicas
    line = " ".join(
        f"{name}={value:.0f}" for name, value in sorted(checks.items()) if "/1/" in name
    )
    first = checks.get("replica/nonfinite", 0)
    print(step, line, f"first={first:.0f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:8]), sys.argv[8])  # type: ignore[call-arg, arg-type]
