"""DeepSpeed's ZeRO-3 on gloo: ranks generate with the model that they train, token by token.

The fault: the answer of one rank ends early, and the rank goes on to its reward; the others gather
the parameters for their next token.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch

import stagewatch
from tests.hangbench.programs.part import Part

WIDTH, LENGTH = 64, 6
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "zero_allow_untested_optimizer": True,
}


def engine_of(part: Part) -> Any:
    """DeepSpeed's engine of a small model."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled first
    part.form_group()
    layers = torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]


def generate(engine: Any, length: int) -> torch.Tensor:
    """An answer of so many tokens."""
    answer = torch.ones(1, WIDTH)
    with torch.no_grad():
        for _ in range(length):
            answer = engine(answer)
            time.sleep(0.05)
    return answer


def main() -> None:
    """Generate and train."""
    part = Part()
    torch.set_num_threads(1)
    engine = engine_of(part)
    while part.step():
        struck = part.struck()
        with stagewatch.stage("rollout"):
            answer = generate(engine, LENGTH // 2 if struck and part.given.fault else LENGTH)
        with stagewatch.stage("reward"):
            time.sleep(part.given.pause if struck else 0.1)
            torch.distributed.all_reduce(torch.ones(1))
        with stagewatch.stage("train"):
            engine.backward(engine(answer).sum())
            engine.step()


if __name__ == "__main__":
    main()
