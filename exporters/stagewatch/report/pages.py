"""Both reports as pages: one HTML file each that needs nothing else.

Every text is escaped where a template shows it; only figures and our style sheet are taken as they
are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

import stagewatch
from stagewatch.report import periods
from stagewatch.report.components import component_of
from stagewatch.report.deviations import MIN_SAMPLES
from stagewatch.report.diagnosis import MOMENTS, Milestone
from stagewatch.report.events import Firing, Hung
from stagewatch.report.experiment import Experiment
from stagewatch.report.phases import PHASES, Phases
from stagewatch.report.recovery import Recovery

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
        about=lambda firing: _about(firing, full.view.hung),
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


def _about(firing: Firing, hung: Sequence[Hung]) -> str:
    """What an alert or a verdict speaks of, and where the rank it names hung meanwhile."""
    who = component_of(firing.labels)
    parts = [who.label if who.kind != "slurm" else firing.labels.get("role", "")]
    parts += [
        f"{name} {firing.labels[name]}" for name in ("stage", "evidence") if firing.labels.get(name)
    ]
    parts += [
        f"at {each.frame}"
        for each in hung
        if each.component == who and firing.start <= each.time <= firing.end
    ]
    return ", ".join(part for part in parts if part) or "job"


def phase_rows(phases: Phases) -> list[tuple[str, Milestone, str]]:
    """Words, moment and colour of the phases as they came; those not seen at the end."""
    rows = [
        (
            words,
            Milestone(getattr(phases, name), phases.detected_by if name == "detected" else ""),
            colour,
        )
        for name, words, colour in PHASES
    ]
    return sorted(rows, key=lambda row: row[1].time or math.inf)
