"""A loop of Accelerate on gloo, whose main process saves the model now and then.

The fault: the main process waits for everyone where only the main process comes.
"""

from __future__ import annotations

import time

import torch
from accelerate import Accelerator

import stagewatch
from tests.hangbench.programs.part import Part, directory


def main() -> None:
    """Train."""
    part = Part()
    torch.set_num_threads(1)
    part.form_group()
    accelerator = Accelerator(cpu=True)
    plain = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), lr=1e-3))
    while part.step():
        with stagewatch.stage("train"):
            time.sleep(0.3)
            accelerator.backward(model(torch.ones(4, 64)).sum())
            optimizer.step()
            optimizer.zero_grad()
        struck = part.struck()
        if part.at == part.given.at and accelerator.is_main_process:
            with stagewatch.stage("checkpoint"):
                if struck and part.given.fault:
                    accelerator.wait_for_everyone()
                accelerator.save(
                    accelerator.unwrap_model(model).state_dict(), directory() / "model"
                )
                time.sleep(part.given.pause)


if __name__ == "__main__":
    main()
