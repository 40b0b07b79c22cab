"""TRL's SFTTrainer, which has no profiling contexts, with a model that fails in its backward pass.

Prints what the record shows of three good steps and of the exception.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import stagewatch
from tests.client.jobs.tiny import tiny_model, tiny_tokenizer

GOOD_STEPS = 3


def main() -> None:
    """Train until it fails, and report."""
    warnings.simplefilter("ignore")  # of other people's packages
    stagewatch.install("trl")
    import torch
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from tests.client.hooking import completed, record

    directory = Path(os.environ["STAGEWATCH_DIR"])
    model = tiny_model()
    passes: list[Any] = []

    def in_backward(_: Any) -> None:
        frame = record(directory).open
        passes.append(frame and frame.stage)
        if len(passes) > GOOD_STEPS:
            raise torch.OutOfMemoryError("made up")

    model.lm_head.weight.register_hook(in_backward)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(Path.cwd() / "out"),
            max_steps=GOOD_STEPS + 2,
            per_device_train_batch_size=2,
            max_length=8,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"text": ["w1 w2 w3 w4"] * 16}),
        processing_class=tiny_tokenizer(),
    )
    raised = ""
    try:
        trainer.train()
    except torch.OutOfMemoryError as error:
        raised = type(error).__name__
    found = record(directory)
    report = {
        "raised": raised,
        "in_backward": passes,
        "completed": completed(found),
        "work": dict(found.work),
        "flops": trainer.current_flos,
        "failures": [[*key, count] for key, count in found.failures.items()],
        "first_failure_step": found.first_failure and found.first_failure.step,
        "open": found.open is not None,
    }
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
