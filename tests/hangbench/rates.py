"""Rates with exact confidence bounds."""

from __future__ import annotations

import math

CONFIDENCE = 0.95


def exact_bounds(hits: int, tries: int) -> tuple[float, float]:
    """The two-sided Clopper-Pearson interval of a rate, found by bisection."""
    if not tries:
        return 0.0, 1.0
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if hits == 0 else _bisect(lambda p: 1 - _below(hits - 1, tries, p) - tail)
    high = 1.0 if hits == tries else _bisect(lambda p: tail - _below(hits, tries, p))
    return low, high


def _below(hits: int, tries: int, rate: float) -> float:
    """The probability of at most `hits` of `tries`."""
    return math.fsum(
        math.comb(tries, k) * rate**k * (1 - rate) ** (tries - k) for k in range(hits + 1)
    )


def _bisect(rising: object) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:  # type: ignore[operator]
            low = middle
        else:
            high = middle
    return (low + high) / 2


def poisson_bounds(count: int, days: float) -> tuple[float, float]:
    """The exact two-sided 95 % interval of a Poisson rate (Garwood), found by bisection."""

    def below(count: int, mean: float) -> float:
        return math.fsum(
            math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)
        )

    def solve(count: int, share: float) -> float:
        low, high = 1e-9, 2.0 * count + 20
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if below(count, middle) > share else (low, middle)
        return low

    return (solve(count - 1, 0.975) if count else 0.0) / days, solve(count, 0.025) / days


def shown(hits: int, tries: int) -> str:
    """A rate with its bounds: `58/60 = 97% (88% to 100%)`."""
    if not tries:
        return "none"
    low, high = exact_bounds(hits, tries)
    return f"{hits}/{tries} = {hits / tries:.0%} ({low:.0%} to {high:.0%})"
