"""What is fuzzed: a parser with sound inputs, and what it may say of an unsound one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.fuzzing.mutations import mutated


@dataclass(frozen=True, slots=True)
class Target:
    """A parser.  It may return, or raise one of `allowed`; anything else is a crash."""

    name: str
    seeds: tuple[bytes, ...]
    run: Callable[[bytes], object]
    weight: float
    """Its share of all inputs, by the sum of the weights."""
    allowed: tuple[type[BaseException], ...] = ()
    change: Callable[[Sequence[bytes], random.Random], bytes] = mutated


def decoded(run: Callable[[str], object]) -> Callable[[bytes], object]:
    """Text as the agent reads it: what is not UTF-8 is replaced."""
    return lambda data: run(data.decode("utf-8", "replace"))


def through(file: Path, run: Callable[[], object]) -> Callable[[bytes], object]:
    """A reader of a file, which holds the input."""

    def read(data: bytes) -> object:
        file.write_bytes(data)
        return run()

    return read
