"""The reports as pages: one HTML file each that needs nothing else.

Every text is escaped where a template shows it; only figures and our style sheet are taken as they
are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import markupsafe

import stagewatch
from stagewatch.core.page import style
from stagewatch.report import periods, story
from stagewatch.report.components import component_of
from stagewatch.report.deviations import MIN_SAMPLES
from stagewatch.report.events import Firing, Hung, Milestone
from stagewatch.report.experiment import Experiment
from stagewatch.report.goodput import Goodput, largest
from stagewatch.report.ledger import GROUPS, STATES
from stagewatch.report.phases import PHASES, Phases
from stagewatch.report.recovery import Recovery

VERDICTS = {
    "met": "downtime is within the error budget",
    "missed": "downtime exceeds the error budget",
    "undecided": "it hangs on time in which nothing was seen",
}


def experiment_page(experiment: Experiment, figures: Mapping[str, str]) -> str:
    """The page of an experiment; `figures` are SVG by name."""
    deviations = sorted(
        (each for each in experiment.view.findings if each.deviated is not None),
        key=lambda each: (not each.steady, each.deviated, -each.severity),
    )
    by_marker = str(experiment.target) == experiment.fault.target
    return _render(
        "experiment.html.jinja",
        figures={
            name: markupsafe.Markup(svg)  # noqa: S704 - ours, see figures
            for name, svg in figures.items()
        },
        title=story.capital(experiment.name),
        opening=story.experiment_opening(experiment),
        entries=story.entries(experiment),
        unseen=story.unseen(experiment),
        why_no_figure=story.why_no_figure(experiment),
        experiment=experiment,
        target_source="the marker" if by_marker else "--origin",
        deviations=deviations,
        unjudged=sum(each.baseline is None for each in experiment.view.findings),
        least=MIN_SAMPLES,
        about=lambda firing: _about(firing, experiment.view.hung),
    )


def recovery_page(recovery: Recovery) -> str:
    """The page of failures and recoveries."""
    return _render(
        "recovery.html.jinja",
        title=recovery.asked.title,
        recovery=recovery,
        opening=lambda cluster: story.recovery_opening(recovery, cluster),
        told_of=story.incident_in_words,
        verdicts=VERDICTS,
        phases=phase_rows,
    )


def goodput_page(goodput: Goodput) -> str:
    """The page of what the GPUs were paid for."""
    return _render(
        "goodput.html.jinja",
        title=story.capital(goodput.asked.title),
        opening=story.goodput_opening(goodput),
        goodput=goodput,
        states=states_of(goodput),
        largest=largest,
    )


def states_of(goodput: Goodput) -> list[tuple[str, str, str, float]]:
    """State, its group and meaning, and GPU-seconds, in the order of groups and then of size."""
    order = list(GROUPS)
    rows = [
        (state, *STATES.get(state, ("unknown", "a state that this version does not know")), seconds)
        for state, seconds in goodput.total.states.items()
        if seconds > 0
    ]
    return sorted(rows, key=lambda row: (order.index(row[1]), -row[3]))


def _render(template: str, **content: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stagewatch.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = (periods.span, periods.iso, periods.minute, periods.clock, periods.number)
    numbers = (periods.share, periods.portion, periods.amount)
    environment.filters |= {each.__name__: each for each in (*words, *numbers)}
    return environment.get_template(template).render(
        css=markupsafe.Markup(style("stagewatch.report", "report.css")),  # noqa: S704 - our own
        version=stagewatch.__version__,
        made=periods.iso(time.time()),
        **content,
    )


def _about(firing: Firing, hung: Sequence[Hung]) -> str:
    """The subject of an alert or a verdict, and the line in which a named rank hung meanwhile."""
    who = component_of(firing.labels)
    parts = [who.label if who.kind != "slurm" else firing.labels.get("role", "")]
    parts += [
        f"{name} {firing.labels[name]}" for name in ("stage", "evidence") if firing.labels.get(name)
    ]
    while_firing = [each for each in hung if firing.start <= each.time <= firing.end]
    parts += story.lines_of(while_firing, who)
    return ", ".join(part for part in parts if part) or "job"


def phase_rows(phases: Phases) -> list[tuple[str, Milestone, str]]:
    """Words, moment and colour of the phases in order of time; unseen ones come last."""
    rows = [
        (
            words,
            Milestone(getattr(phases, name), phases.detected_by if name == "detected" else ""),
            colour,
        )
        for name, words, colour in PHASES
    ]
    return sorted(rows, key=lambda row: row[1].time or math.inf)
