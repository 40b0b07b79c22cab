"""TRL's GRPOTrainer on a tiny model, whose reward checks answers, each within a time limit.

The fault: an answer can be simplified for ever, and the exception that the limit raises falls into
a finalizer, where Python ignores it.
"""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tests.client.jobs.tiny import tiny_model, tiny_tokenizer
from tests.hangbench.programs.part import Part, directory

LIMIT_SECONDS = 15


class Term:
    """A part of an expression, which a cache forgets when nobody needs it any more."""

    def __del__(self) -> None:
        sum(number for number in range(100_000))


def simplify(seconds: float) -> float:
    """Try one form of an answer after the other."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        Term()
    return 1.0


def checked(seconds: float) -> float:
    """The reward of an answer, none if it takes too long."""
    signal.alarm(LIMIT_SECONDS)
    try:
        return simplify(seconds)
    except TimeoutError:
        return 0.0
    finally:
        signal.alarm(0)


def too_long(signum: int, frame: FrameType | None) -> None:
    """End a check."""
    raise TimeoutError("Operation timed out!")


class Steps(TrainerCallback):  # type: ignore[misc]
    """Tells the part of every step."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """A step begins."""
        self._part.step(heartbeat=False)


def main() -> None:
    """Train."""
    part = Part()
    part.hook("trl")
    torch.set_num_threads(1)
    part.form_group()
    signal.signal(signal.SIGALRM, too_long)

    def reward(completions: list[str], **_: Any) -> list[float]:
        seconds = 0.05
        if part.struck():
            seconds = 86400.0 if part.given.fault else part.given.pause / len(completions)
        return [checked(seconds) for _ in completions]

    GRPOTrainer(
        model=tiny_model(),
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(directory() / "out"),
            max_steps=100_000,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=4,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["w1 w2 w3"] * 64}),
        processing_class=tiny_tokenizer(),
        callbacks=[Steps(part)],
    ).train()


if __name__ == "__main__":
    main()
