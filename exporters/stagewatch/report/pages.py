"""Both reports as pages: one HTML file each that needs nothing else.

Every text is escaped where a template shows it; only figures and our style sheet are taken as they
are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

import stagewatch
from stagewatch.report import periods
from stagewatch.report.components import component_of
from stagewatch.report.deviations import MIN_SAMPLES
from stagewatch.report.diagnosis import MOMENTS
from stagewatch.report.events import Firing
from stagewatch.report.experiment import Experiment
from stagewatch.report.periods import Period, union
from stagewatch.report.phases import PHASES, Phases
from stagewatch.report.recovery import ClusterRecovery, Recovery

VERDICTS = {
    "met": "downtime is within the error budget",
    "missed": "downtime exceeds the error budget",
    "undecided": "it hangs on time in which nothing was seen",
}


def experiment_page(experiment: Experiment, figures: Mapping[str, str]) -> str:
    """The page of an experiment; `figures` are SVG by their names."""
    full = experiment.full
    deviations = sorted(
        (each for each in full.view.findings if each.deviated is not None),
        key=lambda each: (not each.steady, each.deviated, -each.severity),
    )
    by_marker = str(experiment.target) == experiment.fault.target
    return _render(
        "experiment.html.jinja",
        figures,
        title=experiment.name,
        experiment=experiment,
        fault=experiment.fault,
        target_source="the marker" if by_marker else "--origin",
        full=full,
        moments=MOMENTS,
        deviations=deviations,
        unjudged=sum(each.baseline is None for each in full.view.findings),
        least=MIN_SAMPLES,
        about=_about,
    )


def recovery_page(recovery: Recovery, title: str, figures: Mapping[str, str]) -> str:
    """The page of failures and recoveries; `figures` are SVG by their names."""
    return _render(
        "recovery.html.jinja",
        figures,
        title=title,
        asked=recovery.asked,
        clusters=recovery.clusters,
        shown=recovery.shown(),
        verdicts=VERDICTS,
        phases=phase_rows,
        days=lambda cluster: _days(cluster, recovery.asked.period),
    )


def _render(template: str, figures: Mapping[str, str], **content: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stagewatch.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "span": periods.span,
        "iso": periods.iso,
        "clock": periods.clock,
        "number": periods.number,
        "share": periods.share,
        "hours": periods.hours,
    }
    css = (Path(__file__).parent / "templates" / "report.css").read_text(encoding="utf-8")
    return environment.get_template(template).render(
        css=markupsafe.Markup(css),  # noqa: S704 - our own file
        figures={
            name: markupsafe.Markup(svg)  # noqa: S704 - built of elements, see drawing
            for name, svg in figures.items()
        },
        version=stagewatch.__version__,
        made=periods.iso(time.time()),
        **content,
    )


def _about(firing: Firing) -> str:
    """What an alert or a verdict speaks of."""
    who = component_of(firing.labels)
    parts = [who.label if who.kind != "slurm" else firing.labels.get("role", "")]
    parts += [
        f"{name} {firing.labels[name]}" for name in ("stage", "evidence") if firing.labels.get(name)
    ]
    return ", ".join(part for part in parts if part) or "job"


@dataclass(frozen=True, slots=True)
class _PhaseRow:
    name: str
    colour: str
    time: float | None = None
    after: float | None = None
    since: float | None = None
    what: str = ""


def phase_rows(phases: Phases) -> list[_PhaseRow]:
    """The phases as they came, with the time since the one before; those not seen at the end."""
    times = [(getattr(phases, name), name, words, colour) for name, words, colour in PHASES]
    rows: list[_PhaseRow] = []
    for when, name, words, colour in sorted(
        (each for each in times if each[0] is not None), key=lambda each: each[0]
    ):
        since = when - (rows[-1].time or 0.0) if rows else None
        what = phases.detected_by if name == "detected" else ""
        rows.append(_PhaseRow(words, colour, when, when - phases.began, since, what))
    return rows + [_PhaseRow(words, colour) for when, _, words, colour in times if when is None]


@dataclass(frozen=True, slots=True)
class _Day:
    day: str
    incidents: int
    downtime: float
    availability: float


def _days(cluster: ClusterRecovery, period: Period) -> list[_Day]:
    """One row a day, for periods of two days and more."""
    if period.seconds < 2 * 86400:
        return []
    downtimes = union(each.downtime for each in cluster.incidents if each.downtime)
    days = []
    for day in range(int(period.start // 86400), int(period.end // 86400) + 1):
        first = max(day * 86400, period.start, cluster.first_seen)
        last = min((day + 1) * 86400, period.end)
        if last > first:
            down = sum(max(0.0, min(d.end, last) - max(d.start, first)) for d in downtimes)
            days.append(
                _Day(
                    datetime.fromtimestamp(day * 86400, timezone.utc).strftime("%Y-%m-%d"),
                    sum(first <= each.began < last for each in cluster.incidents),
                    down,
                    1 - down / (last - first),
                )
            )
    return days
