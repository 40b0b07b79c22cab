"""Both reports as JSON and CSV: easy to read back, and safe to open."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stagewatch.core.words import printable
from stagewatch.report.deviations import Finding
from stagewatch.report.diagnosis import MOMENTS
from stagewatch.report.experiment import Experiment, Side, telling
from stagewatch.report.periods import iso
from stagewatch.report.phases import Phases
from stagewatch.report.recovery import ClusterRecovery, Recovery

_FORMULA = ("=", "+", "-", "@")

After = Callable[[float | None], float | None]
"""Seconds from the injection, or from the beginning of an incident, to a time."""

SERIES: dict[str, Callable[[Finding, After], Any]] = {
    "component": lambda each, _: each.component.label,
    "series": lambda each, _: each.title,
    "stage": lambda each, _: each.stage,
    "unit": lambda each, _: each.signal.unit,
    "samples": lambda each, _: each.baseline.count if each.baseline else 0,
    "mean": lambda each, _: each.baseline and each.baseline.mean,
    "two_sigma_low": lambda each, _: each.baseline and each.baseline.two_sigma[0],
    "two_sigma_high": lambda each, _: each.baseline and each.baseline.two_sigma[1],
    "median": lambda each, _: each.baseline and each.baseline.median,
    "mad": lambda each, _: each.baseline and each.baseline.mad,
    "deviated_after_seconds": lambda each, after: after(each.deviated),
    "two_sigma_after_seconds": lambda each, after: after(each.two_sigma),
    "peak": lambda each, _: each.peak,
    "peak_after_seconds": lambda each, after: after(each.peak_time),
    "times_limit": lambda each, _: each.severity,
    "steady": lambda each, _: each.steady,
}
"""The columns of a series."""

INCIDENT: dict[str, Callable[[Phases, After], Any]] = {
    "began": lambda each, _: iso(each.began),
    "nodes": lambda each, _: " ".join(each.incident.nodes),
    "jobs": lambda each, _: " ".join(job.job_id for job in each.hit),
    "signs": lambda each, _: each.incident.kinds,
    "detected_after_seconds": lambda each, after: after(each.detected),
    "detected_by": lambda each, _: each.detected_by,
    "out_of_service_after_seconds": lambda each, after: after(each.drained),
    "job_ended_after_seconds": lambda each, after: after(each.ended),
    "node_back_after_seconds": lambda each, after: after(each.node_back),
    "job_resumed_after_seconds": lambda each, after: after(each.resumed),
    "downtime_seconds": lambda each, _: each.downtime and each.downtime.seconds,
    "restored": lambda each, _: each.restored,
    "throughput_before": lambda each, _: each.hit[0].throughput_before if each.hit else None,
    "throughput_after": lambda each, _: each.hit[0].throughput_after if each.hit else None,
    "throughput_change_ratio": lambda each, _: each.hit[0].throughput_change if each.hit else None,
    "resolution_seconds": lambda each, _: each.resolution,
}
"""The columns of an incident; throughput is that of the first job that was hit."""


def csv_text(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Comma-separated, quoted where needed; what is not known is empty.

    Text that a spreadsheet would take for a formula gets an apostrophe before it, and control
    characters, which would move it into a cell of its own, become blanks
    (https://owasp.org/www-community/attacks/CSV_Injection); numbers are left alone.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def json_text(value: Any) -> str:
    """Dataclasses as objects; what is not known is null, never NaN."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def experiment_json(experiment: Experiment) -> str:
    """An experiment as JSON; seconds count from the injection, and null was not seen."""
    full, controller = experiment.full, experiment.controller
    return json_text(
        {
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
            "views": {side.view.name: _view(experiment, side) for side in (full, controller)},
            "series": [_series(experiment, each) for each in full.view.findings],
            "shown": [
                {"component": each.component.label, "series": each.title, "values": each.values}
                for each in telling(full)
            ],
            "grid": experiment.grid,
        }
    )


def experiment_csv(experiment: Experiment) -> str:
    """An experiment as CSV: a row for each series."""
    rows = [_series(experiment, each) for each in experiment.full.view.findings]
    return csv_text(SERIES, [row.values() for row in rows])


def recovery_json(recovery: Recovery) -> str:
    """A recovery report as JSON; times are Unix seconds, and null was not seen."""
    return json_text(
        {
            "kind": "recovery",
            "period": recovery.asked.period,
            "slo": recovery.asked.slo,
            "clusters": [_cluster(cluster) for cluster in recovery.clusters],
        }
    )


def recovery_csv(recovery: Recovery) -> str:
    """A recovery report as CSV: a row for each incident."""
    rows = [
        (cluster.cluster, *(of(each, _after(each.began)) for of in INCIDENT.values()))
        for cluster in recovery.clusters
        for each in cluster.incidents
    ]
    return csv_text(("cluster", *INCIDENT), rows)


def _view(experiment: Experiment, side: Side) -> dict[str, Any]:
    after = experiment.after
    return {
        "seconds_after_injection": {
            name: after(getattr(side.milestones, name).time) for name, _, _ in MOMENTS
        },
        "milestones": side.milestones,
        "diagnosis": side.diagnosis,
        "suspects": [
            {
                "component": each.component.label,
                "after_seconds": after(each.time),
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
                "after_seconds": after(each.time),
                "kind": each.kind,
                "stage": each.stage,
                "text": each.text,
            }
            for each in side.view.events
        ],
    }


def _series(experiment: Experiment, finding: Finding) -> dict[str, Any]:
    after = _after(experiment.fault.start)
    return {name: of(finding, after) for name, of in SERIES.items()}


def _after(zero: float) -> After:
    return lambda when: None if when is None else round(when - zero, 3)


def _cluster(cluster: ClusterRecovery) -> dict[str, Any]:
    slo = cluster.slo
    return {
        "cluster": cluster.cluster,
        "slo": {**_plain(slo), "left": slo.left},
        "incidents": [
            {
                "began": each.began,
                "nodes": each.incident.nodes,
                "open": each.incident.open,
                "signs": each.incident.signs,
                "injected": each.injected,
                "detected": each.detected,
                "detected_by": each.detected_by,
                "out_of_service": each.drained,
                "job_ended": each.ended,
                "node_back": each.node_back,
                "job_resumed": each.resumed,
                "downtime": each.downtime,
                "restored": each.restored,
                "jobs": each.jobs,
                "resolution_seconds": each.resolution,
            }
            for each in cluster.incidents
        ],
        "incidents_left_out": cluster.left_out,
        "scrapes": [
            {"job": s.job, "targets": s.targets, "success": s.success, "coverage": s.coverage}
            for s in cluster.scrapes
        ],
        "jobs_at_once": cluster.jobs_seen or None,
        "nodes": cluster.nodes,
        "node_hours_out_of_service": cluster.node_hours_out,
        "wasted_gpu_hours": {
            "stalled": cluster.stalled_gpu_hours,
            "interrupted": cluster.interrupted_gpu_hours,
            "together": cluster.wasted_gpu_hours,
        },
        "runs_ended": cluster.runs_ended,
        "requeues": cluster.requeues,
        "first_seen": cluster.first_seen,
        "resolution_seconds": cluster.resolution,
    }


def _plain(value: Any) -> Any:
    """Values that JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str):
        text = printable(value, substitute=" ")
        return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
    if isinstance(value, float):
        return f"{value:.10g}" if math.isfinite(value) else ""
    return value
