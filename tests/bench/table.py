"""Figures beside their budgets."""

from __future__ import annotations

from collections.abc import Sequence


def row(what: str, measured: float, unit: str, budget: float | None = None) -> None:
    """One figure; with a budget, the share of it that is used."""
    text = f"{what:<52} {measured:10.3f} {unit:<6}"
    if budget is not None:
        text += f"  budget {budget:g} {unit}, used {measured / budget:.0%}"
    print(text, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which the given share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
