"""The results of a run, as JSON and as tables in Markdown; misses come first."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tests.hangbench.rates import shown
from tests.hangbench.score import INNOCENT, RIGHT, SILENT, STRANGER, Outcome
from tests.hangbench.shape import server_number

ALL = "all"


def write(outcomes: Sequence[Outcome], folder: Path) -> str:
    """Write `hangbench.json` and `hangbench.md`; returns the latter."""
    return save(folder, "hangbench", list(map(dataclasses.asdict, outcomes)), markdown(outcomes))


def save(folder: Path, name: str, table: Sequence[Mapping[str, object]], text: str) -> str:
    """Write outcomes as JSON and as a text in Markdown; returns the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(table, indent=1) + "\n")
    (folder / f"{name}.md").write_text(text)
    return text


def markdown(outcomes: Sequence[Outcome]) -> str:
    """All tables."""
    counted = [one for one in outcomes if one.counts]
    faults = [one for one in counted if not one.healthy]
    healthy = [one for one in counted if one.healthy]
    wrong = [one for one in counted if not good(one)]
    parts = [
        f"{len(faults)} faults and {len(healthy)} healthy shapes are counted. "
        "Bounds are exact two-sided 95% intervals (Clopper and Pearson).",
        _shapes("Not as expected", wrong),
        _faults(faults),
        _healthy(healthy),
        _agreement(counted),
        _detectors(counted),
        _shapes("As expected", [one for one in counted if good(one)]),
    ]
    if left := [one for one in outcomes if not one.counts]:
        parts.append(_left_out(left))
    return "\n\n".join(parts) + "\n"


def good(one: Outcome) -> bool:
    """Whether all of the answer is as expected."""
    named = one.healthy or one.answer == RIGHT
    levels = _met(one.suspicion, one.suspected_after) and _met(one.page, one.paged_after)
    return named and levels and one.evidence_right and not one.early


def _met(level: str, after: float | None) -> bool:
    return level == "may" or (after is not None) == (level == "must")


def _faults(faults: Sequence[Outcome]) -> str:
    rows = ["### Faults", "", "| kind | suspected | named rightly at the end | innocents named | "
            "`inspect` names rightly | p50, p90 to suspicion | p50, p90 beyond the budget | "
            "paged of those that must | p50, p90 to page |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for kind, some in _by_kind(faults):
        must = [one for one in some if one.page == "must"]
        asked = [one for one in some if one.inspect]
        cells = (
            _rate(some, lambda one: one.suspected_after is not None),
            _rate(some, lambda one: one.answer == RIGHT),
            _rate(some, lambda one: one.answer == INNOCENT),
            _rate(asked, lambda one: one.inspect == RIGHT),
            _times(one.suspected_after for one in some),
            _times(one.beyond_budget for one in some),
            _rate(must, lambda one: one.paged_after is not None),
            _times(one.paged_after for one in must),
        )
        rows.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _healthy(healthy: Sequence[Outcome]) -> str:
    rows = ["### Healthy shapes", "", "| kind | paged | suspected | `inspect` sees a stall |",
            "| --- | --- | --- | --- |"]  # fmt: skip
    for kind, some in _by_kind(healthy):
        cells = (
            _rate(some, lambda one: one.paged_after is not None or one.early == "paged"),
            _rate(some, lambda one: one.suspected_after is not None or bool(one.early)),
            _rate([one for one in some if one.inspect], lambda one: one.inspect != SILENT),
        )
        rows.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _agreement(some: Sequence[Outcome]) -> str:
    """How often `inspect` and the rules gave the same answer, and where they did not."""
    compared = [one for one in some if one.agrees is not None]
    changed = sum(len(one.rules_named) > 1 for one in compared)
    lines = [
        "`inspect` and the rules name the same ranks at the same time, in shapes on one node: "
        + _rate(compared, lambda one: one.agrees)
        + f"; in {changed} of them the rules changed their answer meanwhile, and either counts"
    ]
    lines += [
        f"- {one.name}: `inspect` names {_ranks(one.inspect_named)}, the rules "
        + " or ".join(map(_ranks, one.rules_named))
        for one in compared
        if not one.agrees
    ]
    return "\n".join(lines)


def _detectors(counted: Sequence[Outcome]) -> str:
    names = list(dict.fromkeys(name for one in counted for name in one.others))
    rows = ["### Other detectors on the same runs", "",
            "| detector | faults found | named rightly | innocents named | p50, p90 | "
            "healthy shapes with an alarm |", "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for name in names:
        said = [(one.healthy, one.others[name]) for one in counted if name in one.others]
        faults = [answer for healthy, answer in said if not healthy]
        calm = [answer for healthy, answer in said if healthy]
        cells = (
            _rate(faults, lambda answer: answer["after"] is not None),
            _rate(faults, lambda answer: answer["answer"] == RIGHT),
            _rate(faults, lambda answer: answer["answer"] == INNOCENT),
            _times(answer["after"] for answer in faults),  # type: ignore[misc]
            _rate(calm, lambda answer: answer["answer"] != SILENT),
        )
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _shapes(title: str, some: Sequence[Outcome]) -> str:
    rows = [f"### {title}: {len(some)}", "", "| shape | kind | expected | answer | named first, at "
            "page, at the end (ever) | suspicion | page | evidence, alerts | `inspect` |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for one in sorted(some, key=lambda one: (one.healthy, one.kind, one.name)):
        named = (one.named_first, one.named_at_page, one.named_at_end)
        expected = "healthy" if one.healthy else " or ".join(map(_ranks, one.expected))
        early = f" ({one.early} before the trigger)" if one.early else ""
        said = [*one.evidence, *(f"{name} ({level})" for name, level in one.alerts.items())]
        inspected = one.inspect and f"{one.inspect}: {_ranks(one.inspect_named)}"
        cells = (
            one.name,
            ("healthy " if one.healthy else "") + one.kind,
            expected,
            one.answer + early,
            ", ".join(map(_ranks, named)) + f" ({_ranks(one.named_ever)})",
            _suspicion(one),
            f"{_seconds(one.paged_after)} ({one.page})",
            ", ".join(said),
            inspected + (f" {one.inspect_problem}" if one.inspect_problem else ""),
        )
        rows.append("| " + " | ".join(cell.replace("\n", " ") for cell in cells) + " |")
    return "\n".join(rows)


def _left_out(left: Sequence[Outcome]) -> str:
    rows = ["### Not counted", "", "| shape | why | answer |", "| --- | --- | --- |"]
    rows += [f"| {one.name} | {one.unsound or one.blind_spot} | {one.answer} |" for one in left]
    return "\n".join(rows)


def _by_kind(some: Sequence[Outcome]) -> list[tuple[str, list[Outcome]]]:
    kinds = sorted({one.kind for one in some})
    return [(ALL, list(some))] + [(kind, [o for o in some if o.kind == kind]) for kind in kinds]


def _rate(some: Sequence[object], is_so: Callable[..., bool]) -> str:
    return shown(sum(map(is_so, some)), len(some))


def _times(values: Iterable[float | None]) -> str:
    times = sorted(value for value in values if value is not None)
    if not times:
        return "–"
    return ", ".join(
        f"{times[min(len(times) - 1, int(share * len(times)))]:.0f} s" for share in (0.5, 0.9)
    )


def _suspicion(one: Outcome) -> str:
    given = "" if one.budget is None else f" (budget {one.budget:.0f} s)"
    return _seconds(one.suspected_after) + given


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} s"


def _ranks(ranks: Sequence[int]) -> str:
    return " ".join(map(_process, ranks)) or "nobody"


def _process(number: int) -> str:
    if number == STRANGER:
        return "?"
    return str(number) if number >= 0 else f"server-{server_number(number)}"
