"""Exact intervals of a rate, from a count of events (Garwood, Biometrika 28, 1936)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache


def fewer(count: int, mean: float) -> float:
    """The probability of fewer than `count` events where `mean` are expected (Poisson)."""
    if mean <= 0:
        return 1.0 if count else 0.0
    return math.fsum(
        math.exp(at * math.log(mean) - mean - math.lgamma(at + 1)) for at in range(count)
    )


@lru_cache(maxsize=4096)
def mean_between(count: int, outside: float) -> tuple[float, float]:
    """The lowest and the highest mean that `count` events may come of.

    Each lies so that the probability of as many events, or as few, is `outside`.
    """
    low = _root(lambda mean: 1 - fewer(count, mean) - outside, count) if count else 0.0
    return low, _root(lambda mean: outside - fewer(count + 1, mean), count)


def _root(rises: Callable[[float], float], near: int) -> float:
    """Where a function that rises is zero, above 0; `near` is a guess."""
    low, high = 0.0, near + 1.0
    while rises(high) < 0:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if rises(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
