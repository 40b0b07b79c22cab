"""Exact intervals of a rate, from a count of events (Garwood, Biometrika 28, 1936)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache


def fewer(count: int, mean: float) -> float:
    """The probability of fewer than `count` events if `mean` are expected (Poisson)."""
    if mean <= 0:
        return 1.0 if count else 0.0
    return math.fsum(
        math.exp(at * math.log(mean) - mean - math.lgamma(at + 1)) for at in range(count)
    )


@lru_cache(maxsize=4096)
def mean_between(count: int, outside: float) -> tuple[float, float]:
    """The lowest and the highest mean that are compatible with `count` events.

    With the lowest, the probability of so many events or more is `outside`; with the highest, that
    of so many or fewer.
    """
    low = _root(lambda mean: 1 - fewer(count, mean) - outside, count) if count else 0.0
    return low, _root(lambda mean: outside - fewer(count + 1, mean), count)


def _root(rises: Callable[[float], float], near: int) -> float:
    """The positive zero of a rising function; `near`: a guess."""
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
