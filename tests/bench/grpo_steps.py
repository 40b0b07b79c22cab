"""GRPOTrainer's steps with and without the hook, for `bench_loader`; prints pairs of CPU times.

The hooks that are named are put in and taken out before a step's clock starts, so that both kinds
of step run in one process, on one model, in random order.  Without a name, steps run as they are,
and nothing of stagewatch is imported here.
"""

from __future__ import annotations

import json
import random
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.client.jobs.tiny import tiny_tokenizer

PAIRS = 400
WARM_UP = 10


PLAIN_STEPS = 60


def paired(hooks: Sequence[str]) -> None:
    """Train, and print a list of pairs."""
    from transformers import TrainerCallback

    import stagewatch

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Alternates between hooked and plain steps."""

        def __init__(self) -> None:
            self.times: list[dict[str, float]] = []
            self.order: list[str] = []
            self.undo: list[Callable[[], None]] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not self.order:
                self.order = random.sample(["with", "without"], 2)
                self.times.append({})
            # Both kinds of step begin with classes that have just been changed, so that the
            # interpreter has equally much to look up again.
            self.undo = [stagewatch.install(hook) for hook in hooks]
            if self.order[0] == "without":
                self.uninstall()
            self.began = time.thread_time_ns()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            took = (time.thread_time_ns() - self.began) / 1e9
            self.times[-1][self.order.pop(0)] = took
            self.uninstall()

        def uninstall(self) -> None:
            while self.undo:
                self.undo.pop()()

    clock = Clock()
    train(2 * (PAIRS + WARM_UP), clock)
    print("\n" + json.dumps(clock.times[WARM_UP:]))


def plain() -> None:
    """Train, and print the CPU times of steps, of all threads."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Notes when a step ends."""

        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ends.append(time.process_time())

    clock = Clock()
    train(PLAIN_STEPS + WARM_UP, clock)
    print("\n" + json.dumps(clock.ends[WARM_UP:]))


def train(steps: int, clock: Any) -> None:
    """So many steps of a tiny model, each with the same work, with a callback."""
    warnings.simplefilter("ignore")  # of other people's packages
    import torch
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(len(completion)) for completion in completions]

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


if __name__ == "__main__":
    paired(sys.argv[1:]) if sys.argv[1:] else plain()
