"""Writes the scenarios' table out of the JSON that the reports left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stagewatch.report.periods import number, span
from tests.experiments.sources import RECOVERY, SOURCES, Evidence

Report = Mapping[str, Any]

_PATH = re.compile(r"(?<!\S)/\S*/(?=[^/\s]+/[^/\s]+)")
"""The beginning of a long path, which is that of the machine it was run on."""

COLUMNS = (
    "#",
    "scenario",
    "began: injected / seen",
    "surfaced: source / seen",
    "detected",
    "localised",
    "with the controller alone: detected / localised",
    "places to look at",
)


def document(directory: Path, command: str, note: str = "") -> str:
    """The page, from `directory/NAME/report.json` of every scenario that was run.

    `note` says what a reader should know of the machine.
    """
    found = {
        file.parent.name: json.loads(file.read_text())
        for file in sorted(directory.glob("*/report.json"))
    }
    experiments = {
        name: found[name]
        for name in (*SOURCES, *sorted(set(found) - set(SOURCES)))
        if name in found and found[name]["kind"] == "experiment"
    }
    recoveries = {name: each for name, each in found.items() if each["kind"] == "recovery"}
    lines = [
        "# Experiments",
        "",
        f"`{command}` writes this page. It measured every number in one run of each",
        "scenario on one machine, with the definitions of [reports.md](reports.md). “Source” is",
        "the report of a GPU cluster on which the scenario is modelled; see",
        "[scenarios.md](scenarios.md).",
        *([note] if note else []),
        "",
    ]
    if experiments:
        lines += [*_summary(experiments), ""]
    for name, report in experiments.items():
        lines += [*_evidence(name, report), ""]
    if recoveries:
        lines += [*_recoveries(recoveries), ""]
    return "\n".join(lines).rstrip() + "\n"


def _summary(experiments: Mapping[str, Report]) -> Iterator[str]:
    yield _row(COLUMNS)
    yield _row("---" for _ in COLUMNS)
    for name, report in experiments.items():
        source, began = SOURCES.get(name), report["fault"]["start"]
        names = report["target"]["names"]
        seen, alone, diagnosis = report["milestones"], report["alone"], report["diagnosis"]
        cells = (
            source.number if source else report["fault"]["scenario"],
            name,
            f"{', '.join(names) or 'not stated'} / {_place(diagnosis['began'])}",
            f"{source.surfaced if source else 'not stated'} / {_place(diagnosis['surfaced'])}",
            _after(seen["detected"]["time"], began),
            _after(seen["localised"]["time"], began),
            " / ".join(_after(alone[name]["time"], began) for name in ("detected", "localised")),
            "not known" if diagnosis["place"] is None else str(diagnosis["place"]),
        )
        yield _row(cells)
    yield ""
    yield "All times count from the injection."


def _evidence(name: str, report: Report) -> Iterator[str]:
    source = SOURCES.get(name)
    yield f"## {name} ({source.number if source else report['fault']['scenario']})"
    yield ""
    if source:
        yield f"Source: {source.fault}. Began: {source.began}. Surfaced: {source.surfaced}."
    ranks = (f"{count} {role or 'ranks'}" for role, count in report["roles"].items())
    baseline = span(report["baseline"]["seconds"])
    every = span(report["interval"])
    yield f"Here: {', '.join(ranks)}; baseline of {baseline}, sampled every {every}."
    yield ""
    columns = ("what", "source", "component", "median (mean ± 2σ)", "furthest", "deviated after")
    yield _row(columns)
    yield _row("---" for _ in columns)
    for evidence in source.evidence if source else ():
        row = _measured(evidence, report)
        if row is None:
            yield _row(
                (evidence.what, evidence.said, "not seen", "not seen", "not seen", "not seen")
            )
            continue
        unit, base = row["signal"]["unit"], row["baseline"]
        usual = "no baseline"
        if base:
            spread = f"{number(base['mean'], unit)} ± {number(2 * base['deviation'], unit)}"
            usual = f"{number(base['median'], unit)} ({spread})"
        peak = "none" if row["peak"] is None else number(row["peak"], unit)
        after = _after(row["deviated"], report["fault"]["start"])
        yield _row((evidence.what, evidence.said, row["component"], usual, peak, after))


def _measured(evidence: Evidence, report: Report) -> Report | None:
    """The series of the place that fits and deviated most."""
    right = [each["component"] for each in report["suspects"] if each["right"]]
    place = evidence.component.replace("{origin}", re.escape(right[0]) + "$" if right else "")
    fitting = [
        row
        for row in report["view"]["findings"]
        if re.match(evidence.series, row["title"]) and re.match(place, row["component"])
    ]
    return max(fitting, key=lambda row: row["severity"] or 0.0, default=None)


def _recoveries(recoveries: Mapping[str, Report]) -> Iterator[str]:
    yield "## Recoveries on Slurm"
    yield ""
    names = [words for _, words, _ in RECOVERY]
    yield _row(("scenario", *names, "downtime"))
    yield _row("---" for _ in range(len(names) + 2))
    yield _row(("S3, source", *(said for *_, said in RECOVERY), "18.2 min"))
    for name, report in recoveries.items():
        for each in (each for cluster in report["clusters"] for each in cluster["incidents"]):
            after = [_after(each[phase], each["began"]) for phase, *_ in RECOVERY]
            downtime = each["downtime"] and each["downtime"]["seconds"]
            yield _row((name, *after, span(downtime)))


def _place(place: Report) -> str:
    return ", ".join(filter(None, (place["component"], place["stage"]))) or "not seen"


def _after(when: float | None, began: float) -> str:
    return span(None if when is None else when - began)


def _row(cells: Iterable[object]) -> str:
    texts = (_PATH.sub("…/", " ".join(str(cell).split())).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"
