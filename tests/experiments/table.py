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
    "hops: source / seen",
    "places to look at: without / with",
    "2σ alone",
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
        "scenario on one machine, by the report that [reports.md](reports.md) defines. “Source” is",
        "the account of a cluster with GPUs on which the scenario is modelled; see",
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
        full, alone = report["views"]["full"], report["views"]["controller"]
        source = SOURCES.get(name)
        after, other = full["seconds_after_injection"], alone["seconds_after_injection"]
        seen = full["diagnosis"]
        cells = (
            source.number if source else report["fault"]["scenario"],
            name,
            f"{', '.join(report['origin']) or 'not stated'} / {_place(seen['began'])}",
            f"{source.surfaced if source else 'not stated'} / {_place(seen['surfaced'])}",
            span(after["detected"]),
            span(after["localised"]),
            f"{span(other['detected'])} / {span(other['localised'])}",
            f"{source.hops if source else 'not stated'} / {_or_not(seen['hops'])}",
            f"{_or_not(seen['places_unranked'])} / {_or_not(seen['places_ranked'])}",
            span(_first_two_sigma(report)),
        )
        yield _row(cells)
    yield ""
    yield "All times count from the injection. A hop leads from one role, or stage, to the next, on"
    yield "the way from where the fault began to where it surfaced. “2σ alone” is whichever series"
    yield "is the first to stay beyond mean ± 2σ: it detects, and accuses whatever fluctuates."


def _evidence(name: str, report: Report) -> Iterator[str]:
    source = SOURCES.get(name)
    yield f"## {name} ({source.number if source else report['fault']['scenario']})"
    yield ""
    if source:
        yield f"Source: {source.fault}. Began: {source.began}. Surfaced: {source.surfaced}."
    ranks = (f"{count} {role or 'ranks'}" for role, count in report["ranks_by_role"].items())
    baseline = span(report["baseline"]["end"] - report["baseline"]["start"])
    every = span(report["scrape_interval_seconds"])
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
        unit = row["unit"]
        base = "no baseline"
        if row["samples"]:
            spread = (row["two_sigma_high"] - row["two_sigma_low"]) / 2
            mean = f"{number(row['mean'], unit)} ± {number(spread, unit)}"
            base = f"{number(row['median'], unit)} ({mean})"
        peak = "none" if row["peak"] is None else number(row["peak"], unit)
        after = row["deviated_after_seconds"]
        cells = (evidence.what, evidence.said, row["component"], base, peak, span(after))
        yield _row(cells)


def _measured(evidence: Evidence, report: Report) -> Report | None:
    """The series of the place that fits and deviated most."""
    right = [each["component"] for each in report["views"]["full"]["suspects"] if each["right"]]
    place = evidence.component.replace("{origin}", re.escape(right[0]) + "$" if right else "")
    fitting = [
        row
        for row in report["series"]
        if re.match(evidence.series, row["series"]) and re.match(place, row["component"])
    ]
    return max(fitting, key=lambda row: row["times_limit"] or 0.0, default=None)


def _first_two_sigma(report: Report) -> float | None:
    times = [row["two_sigma_after_seconds"] for row in report["series"]]
    return min((when for when in times if when is not None), default=None)


def _recoveries(recoveries: Mapping[str, Report]) -> Iterator[str]:
    yield "## Recoveries on Slurm"
    yield ""
    names = [phase.replace("_", " ") for phase, _ in RECOVERY]
    yield _row(("scenario", *names, "downtime", "throughput before → after"))
    yield _row("---" for _ in range(len(names) + 3))
    yield _row(("S3, source", *(said for _, said in RECOVERY), "18.2 min", "1250 → 1180 samples/s"))
    for name, report in recoveries.items():
        for each in (each for cluster in report["clusters"] for each in cluster["incidents"]):
            after = [each[phase] and each[phase] - each["began"] for phase, _ in RECOVERY]
            downtime = each["downtime"] and each["downtime"]["end"] - each["downtime"]["start"]
            yield _row((name, *map(span, after), span(downtime), _throughput(each["jobs"])))


def _throughput(jobs: Iterable[Report]) -> str:
    for job in jobs:
        if job["throughput_before"] is not None and job["throughput_after"] is not None:
            unit = job["throughput_unit"]
            return f"{job['throughput_before']:.4g} → {job['throughput_after']:.4g} {unit}"
    return "not seen"


def _place(place: Report) -> str:
    return ", ".join(filter(None, (place["component"], place["stage"]))) or "not seen"


def _or_not(value: float | None) -> str:
    return "not known" if value is None else f"{value:g}"


def _row(cells: Iterable[object]) -> str:
    texts = (_PATH.sub("…/", " ".join(str(cell).split())).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"
