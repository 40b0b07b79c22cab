"""An experiment as files: the page, the figures, JSON and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagewatch.report.baseline import MIN_SAMPLES
from stagewatch.report.components import component_of
from stagewatch.report.experiment import Experiment, Side
from stagewatch.report.figure_anomaly import anomaly, telling
from stagewatch.report.figure_diagnosis import Bar, Group, diagnosis
from stagewatch.report.figure_propagation import propagation
from stagewatch.report.findings import Finding
from stagewatch.report.firing import Firing
from stagewatch.report.page import render
from stagewatch.report.svg import Figure
from stagewatch.report.tables import csv_text, json_text

HEADER = (
    "component",
    "series",
    "stage",
    "unit",
    "samples",
    "mean",
    "two_sigma_low",
    "two_sigma_high",
    "median",
    "mad",
    "deviated_after_seconds",
    "two_sigma_after_seconds",
    "peak",
    "peak_after_seconds",
    "times_limit",
    "steady",
)
MOMENTS = (
    "injected",
    "effect",
    "detected",
    "localised",
    "first_error",
    "last_error",
    "ended",
    "clear",
)


def figures(experiment: Experiment) -> dict[str, Figure]:
    """The three figures of each view, by name."""
    full, controller = experiment.full, experiment.controller
    return {
        "propagation": propagation(experiment, full),
        "anomaly": anomaly(experiment, full),
        "diagnosis": diagnosis([_group(experiment, full), _group(experiment, controller)]),
        "propagation_controller": propagation(experiment, controller),
        "anomaly_controller": anomaly(experiment, controller),
        "diagnosis_controller": diagnosis([_group(experiment, controller)], "diagnosis-controller"),
    }


def html(experiment: Experiment, drawn: dict[str, Figure]) -> str:
    """The page."""
    full = experiment.full
    deviations = sorted(
        (each for each in full.view.findings if each.deviated is not None),
        key=lambda each: (not each.steady, each.deviated, -each.severity),
    )
    return render(
        "experiment.html.j2",
        title=experiment.name,
        fault=experiment.fault,
        target=str(experiment.target),
        target_source="the marker"
        if str(experiment.target) == experiment.fault.target
        else "--origin",
        job_id=experiment.job_id,
        cluster=experiment.fault.cluster,
        baseline=experiment.baseline,
        interval=experiment.interval,
        step=experiment.grid.step,
        full=full,
        after=_after(experiment, full),
        figures=drawn,
        deviations=deviations,
        total=len(full.view.findings),
        unjudged=sum(each.baseline is None for each in full.view.findings),
        least=MIN_SAMPLES,
        about=_about,
    )


def record(experiment: Experiment) -> dict[str, Any]:
    """What the JSON file holds; seconds are after the injection, null where not seen."""
    return {
        "kind": "experiment",
        "fault": experiment.fault,
        "origin": list(experiment.target.names),
        "job_id": experiment.job_id,
        "nodes": experiment.nodes,
        "ranks_by_role": experiment.roles,
        "baseline": experiment.baseline,
        "run": experiment.run,
        "scrape_interval_seconds": experiment.interval,
        "resolution_seconds": experiment.grid.step,
        "views": {side.view.name: _view(experiment, side) for side in _sides(experiment)},
        "series": [_series(experiment, each) for each in experiment.full.view.findings],
        "shown": [
            {"component": each.component.label, "series": each.title, "values": each.values}
            for each in telling(experiment.full)
        ],
        "grid": experiment.grid,
    }


def json_of(experiment: Experiment) -> str:
    """The JSON file."""
    return json_text(record(experiment))


def csv_of(experiment: Experiment) -> str:
    """The CSV file: a row for each series."""
    rows = [list(_series(experiment, each).values()) for each in experiment.full.view.findings]
    return csv_text(HEADER, rows)


def _sides(experiment: Experiment) -> Sequence[Side]:
    return experiment.full, experiment.controller


def _after(experiment: Experiment, side: Side) -> dict[str, float | None]:
    found = {}
    for name in MOMENTS:
        when = getattr(side.milestones, name).time
        found[name] = None if when is None else when - experiment.fault.start
    return found


def _view(experiment: Experiment, side: Side) -> dict[str, Any]:
    return {
        "seconds_after_injection": _after(experiment, side),
        "milestones": side.milestones,
        "diagnosis": side.diagnosis,
        "suspects": [
            {
                "component": each.component.label,
                "after_seconds": each.time - experiment.fault.start,
                "stage": each.stage,
                "evidence": each.evidence,
                "times_limit": each.severity,
                "right": each.right,
                "waits": each.waits,
            }
            for each in side.suspects
        ],
        "firings": side.view.firings,
        "events": [
            {
                "component": each.component.label,
                "after_seconds": each.time - experiment.fault.start,
                "kind": each.kind,
                "stage": each.stage,
                "text": each.text,
            }
            for each in side.view.events
        ],
    }


def _series(experiment: Experiment, finding: Finding) -> dict[str, Any]:
    base = finding.baseline
    low, high = base.two_sigma if base else (None, None)

    def after(when: float | None) -> float | None:
        return None if when is None else round(when - experiment.fault.start, 3)

    values = (
        finding.component.label,
        finding.title,
        finding.stage,
        finding.signal.unit,
        base.count if base else 0,
        base.mean if base else None,
        low,
        high,
        base.median if base else None,
        base.mad if base else None,
        after(finding.deviated),
        after(finding.two_sigma),
        finding.peak,
        after(finding.peak_time),
        finding.severity,
        finding.steady,
    )
    return dict(zip(HEADER, values, strict=True))


def _group(experiment: Experiment, side: Side) -> Group:
    after = _after(experiment, side)
    titles = {"full": "Everything measured", "controller": "Controller and Slurm alone"}
    return Group(
        titles[side.view.name],
        [
            Bar("detected", after["detected"], "detect"),
            Bar("localised", after["localised"], "localise"),
        ],
        experiment.run.end - experiment.fault.start,
    )


def _about(firing: Firing) -> str:
    who = component_of(firing.labels)
    parts = [who.label if who.kind != "slurm" else firing.labels.get("role", "")]
    parts += [
        f"{name} {firing.labels[name]}" for name in ("stage", "evidence") if firing.labels.get(name)
    ]
    return ", ".join(part for part in parts if part) or "job"
