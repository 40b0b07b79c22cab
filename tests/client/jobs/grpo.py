"""TRL's GRPOTrainer on a tiny random model: `python -m tests.client.jobs.grpo [before|after]`.

Prints what the record showed inside the reward function and at the end.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import stagewatch
from tests.client.jobs.tiny import tiny_model, tiny_tokenizer

STEPS = 4
ACCUMULATION = 2


def main(when: str) -> None:
    """Hook TRL before or after it is imported, train for four steps and report."""
    warnings.simplefilter("ignore")  # of other people's packages
    if when == "before":
        stagewatch.install("trl")
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    if when == "after":
        stagewatch.install("trl")
    from tests.client.hooking import completed, record

    torch.manual_seed(0)
    here = Path.cwd()
    directory = Path(os.environ["STAGEWATCH_DIR"])
    tokenizer = tiny_tokenizer()
    tiny_model().save_pretrained(here / "model")  # a KL term loads its reference from disk
    tokenizer.save_pretrained(here / "model")
    seen: list[tuple[str, str, int | None]] = []

    def reward_length(completions: list[str], **_: Any) -> list[float]:
        frame = record(directory).open
        seen.append((frame.stage, frame.substage, frame.step))
        return [float(len(completion)) for completion in completions]

    prompts = Dataset.from_dict({"prompt": ["w1 w2 w3"] * 16})
    trainer = GRPOTrainer(
        model=str(here / "model"),
        reward_funcs=reward_length,
        args=GRPOConfig(
            output_dir=str(here / "out"),
            max_steps=STEPS,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            gradient_accumulation_steps=ACCUMULATION,
            num_generations=2,
            max_completion_length=4,
            beta=0.1,
            save_steps=2,
            eval_strategy="steps",
            eval_steps=4,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=prompts,
        eval_dataset=prompts.select(range(2)),
        processing_class=tokenizer,
    )
    trainer.train()
    found = record(directory)
    report = {
        "seen": seen,
        "completed": completed(found),
        "scalars": dict(found.scalars),
        "work": dict(found.work),
        "calls": {name: sum(one.durations) for name, one in found.calls.items()},
        "tokens": trainer.state.num_input_tokens_seen,
        "framework": found.framework,
        "role": found.role,
        "step": found.lanes[0].step,
        "open": found.open is not None,
        "dropped": found.dropped,
        "failures": len(found.failures),
    }
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
