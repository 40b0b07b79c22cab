"""GRPOTrainer's steps with and without the hook, for `bench_overhead`; prints pairs of CPU times.

The hook is put in and taken out before a step's clock starts, so that both kinds of step run in
one process, on one model, in random order.
"""

from __future__ import annotations

import json
import random
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stagewatch
from tests.client.jobs.grpo import tiny_tokenizer

PAIRS = 400
WARM_UP = 10


def main() -> None:
    """Train, and print a list of pairs."""
    warnings.simplefilter("ignore")  # of other people's packages
    import torch
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Alternates between hooked and plain steps."""

        def __init__(self) -> None:
            self.times: list[dict[str, float]] = []
            self.order: list[str] = []
            self.uninstall: Callable[[], None] = lambda: None

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not self.order:
                self.order = random.sample(["with", "without"], 2)
                self.times.append({})
            # Both kinds of step begin with classes that have just been changed, so that the
            # interpreter has equally much to look up again.
            self.uninstall = stagewatch.install("trl")
            if self.order[0] == "without":
                self.uninstall()
            self.began = time.thread_time_ns()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            took = (time.thread_time_ns() - self.began) / 1e9
            self.times[-1][self.order.pop(0)] = took
            self.uninstall()
            self.uninstall = lambda: None

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(len(completion)) for completion in completions]

    clock = Clock()
    steps = 2 * (PAIRS + WARM_UP)
    trainer = GRPOTrainer(
        model=LlamaForCausalLM(
            LlamaConfig(
                vocab_size=32,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=2,
                max_position_embeddings=64,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=1,
            )
        ),
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(Path.cwd() / "out"),
            max_steps=steps,
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=8,
            generation_kwargs={"min_new_tokens": 8},  # every step does the same work
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["w1 w2 w3"] * 4 * steps}),
        processing_class=tiny_tokenizer(),
        callbacks=[clock],
    )
    trainer.train()
    print("\n" + json.dumps(clock.times[WARM_UP:]))


if __name__ == "__main__":
    main()
