"""The results of a run about slow ranks, as JSON and as tables in Markdown; misses come first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.hangbench.rates import poisson_bounds, shown
from tests.hangbench.results import save
from tests.hangbench.slow_score import SlowOutcome

GOAL = "goal: from 1.2 ×, noise of 5 %, stages from 0.5 s"
MINUTES = (2, 10)
DAY = 86400.0
_BY: dict[str, Callable[[SlowOutcome], object]] = {
    "factor": lambda one: f"{one.factor:g} ×",
    "stage": lambda one: f"{one.stage:g} s",
    "noise": lambda one: f"{one.noise:.0%}",
    "means": lambda one: one.kind,
    "course": lambda one: one.course,
    "ranks": lambda one: one.world,
    "backend": lambda one: one.backend,
}


def write(outcomes: Sequence[SlowOutcome], folder: Path) -> str:
    """Write `slow.json` and `slow.md`; returns the latter."""
    return save(folder, "slow", list(map(dataclasses.asdict, outcomes)), markdown(outcomes))


def markdown(outcomes: Sequence[SlowOutcome]) -> str:
    """All tables."""
    counted = [one for one in outcomes if not one.unsound]
    slow = [one for one in counted if not one.healthy]
    healthy = [one for one in counted if one.healthy]
    missed = [one for one in counted if not good(one)]
    parts = [
        f"{len(slow)} slow and {len(healthy)} healthy shapes are counted. Rates have exact "
        "two-sided 95% intervals: Clopper and Pearson's, those a job-day Garwood's.",
        _shapes("Not as expected", missed),
        _slow(slow),
        _healthy(healthy),
        _shapes("As expected", [one for one in counted if good(one)]),
    ]
    if left := [one for one in outcomes if one.unsound]:
        rows = [f"| {one.name} | {one.unsound} |" for one in left]
        parts.append("\n".join(["### Not counted", "", "| shape | why |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def good(one: SlowOutcome) -> bool:
    """Whether all of the answer is as expected."""
    return within(one, MINUTES[-1]) >= one.must and not one.false and not one.pages


def within(one: SlowOutcome, minutes: float) -> bool:
    """Whether the right answer came within so many minutes of the trigger."""
    return one.told_after is not None and one.told_after <= 60 * minutes


def _slow(slow: Sequence[SlowOutcome]) -> str:
    must = [one for one in slow if one.must]
    goal = [o for o in must if o.factor >= 1.2 and o.noise <= 0.05 and o.stage >= 0.5]
    groups = [("all", must), (GOAL, goal)]
    for what, key in _BY.items():
        for value in sorted({key(one) for one in must}, key=_order):
            groups.append((f"{what}: {value}", [one for one in must if key(one) == value]))
    groups.append(("need not be named", [one for one in slow if not one.must]))
    rows = ["### Slow shapes", "", "| | told within 2 min | within 10 min | median | "
            "innocents named |", "| --- " * 5 + "|"]  # fmt: skip
    for name, some in groups:
        told = sorted(one.told_after for one in some if one.told_after is not None)
        cells = [_rate(some, lambda one, m=m: within(one, m)) for m in MINUTES]  # type: ignore[misc]
        cells.append(f"{told[len(told) // 2]:.0f} s" if told else "–")
        cells.append(_rate(some, lambda one: bool(one.false)))
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _healthy(healthy: Sequence[SlowOutcome]) -> str:
    rows = ["### Healthy shapes", "", "| kind | with a false name | false names a job-day | "
            "told that slowness rotates | paged |", "| --- " * 5 + "|"]  # fmt: skip
    kinds = ["all", *sorted({one.kind for one in healthy})]
    for kind in kinds:
        some = [one for one in healthy if kind in ("all", one.kind)]
        days = sum(one.seconds for one in some) / DAY
        cells = (
            _rate(some, lambda one: bool(one.false)),
            per_day(sum(len(one.false) for one in some), days),
            _rate(some, lambda one: one.rotates_after is not None),
            _rate(some, lambda one: bool(one.pages)),
        )
        rows.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def per_day(count: int, days: float) -> str:
    """A rate a job-day with its bounds."""
    if not days:
        return "none"
    low, high = poisson_bounds(count, days)
    return f"{count} in {days:.3f} = {count / days:.2f} ({low:.2f} to {high:.2f})"


def _shapes(title: str, some: Sequence[SlowOutcome]) -> str:
    rows = [f"### {title}: {len(some)}", "", "| shape | means, course | slow by (measured) | "
            "stage, noise, ranks | expected | told after | false names | pages |",
            "| --- " * 8 + "|"]  # fmt: skip
    for one in sorted(some, key=lambda one: (one.healthy, one.kind, one.name)):
        expected = " ".join(map(str, one.expected)) or "nobody"
        cells = (
            one.name,
            f"healthy {one.kind}" if one.healthy else f"{one.kind}, {one.course}",
            f"{one.factor:g} × ({'–' if one.measured is None else f'{one.measured:.2f}'})",
            f"{one.stage:g} s, {one.noise:.0%}, {one.world} {one.backend}",
            ("rotates" if one.rotates else expected) + ("" if one.must else " (may)"),
            "–" if one.told_after is None else f"{one.told_after:.0f} s",
            "; ".join(one.false) or "–",
            ", ".join(one.pages) or "–",
        )
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _rate(some: Sequence[SlowOutcome], is_so: Callable[[SlowOutcome], bool]) -> str:
    return shown(sum(map(is_so, some)), len(some))


def _order(value: object) -> tuple[float, str]:
    text = str(value)
    number = text.rstrip(" ×s%")
    return (float(number), "") if number.replace(".", "").isdigit() else (0.0, text)
