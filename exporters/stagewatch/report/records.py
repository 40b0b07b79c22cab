"""The reports as JSON and CSV: easy to read back, and safe to open."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from stagewatch.core.words import printable
from stagewatch.report.behind import behind
from stagewatch.report.components import Component
from stagewatch.report.deviations import Finding
from stagewatch.report.diagnosis import MOMENTS
from stagewatch.report.experiment import Experiment, Side, telling
from stagewatch.report.goodput import Goodput, Use
from stagewatch.report.history import Grid, Values
from stagewatch.report.periods import iso
from stagewatch.report.phases import PHASES
from stagewatch.report.recovery import ClusterRecovery, Recovery

_FORMULA = ("=", "+", "-", "@")

SAMPLES = ("time", "metric", "labels", "value", "unit")
"""The columns of a row for each sample."""

_Row = tuple[str, str, str, float, str]

After = Callable[[float | None], float | None]
"""Seconds from the injection, or from the beginning of an incident, to a time."""


def _snake(words: str) -> str:
    return words.replace(" ", "_")


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
"""What JSON tells of a series."""


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
    """Every series that was judged, as CSV: first its baseline, then the run."""
    run = experiment.grid
    count = max(0, min(experiment.before.count, experiment.before.index(run.start)))
    rows: list[_Row] = []
    for each in experiment.full.view.findings:
        labels = dict(each.labels) | ({"source": "recorded"} if each.recorded else {})
        metric, unit = each.signal.source, each.signal.unit
        rows += _samples(metric, labels, unit, experiment.before, each.past[:count])
        rows += _samples(metric, labels, unit, run, each.values)
    return csv_text(SAMPLES, rows)


def recovery_json(recovery: Recovery) -> str:
    """A recovery report as JSON; times are Unix seconds, and null was not seen."""
    return json_text(
        {
            "kind": "recovery",
            "asked": recovery.asked,
            "clusters": [_cluster(cluster) for cluster in recovery.clusters],
        }
    )


def recovery_csv(recovery: Recovery) -> str:
    """Of each incident that has a section, as CSV: whether its jobs ran, and their throughput."""
    rows: list[_Row] = []
    for cluster, phases, name in recovery.shown():
        common = {"cluster": cluster.cluster, "incident": name}
        for job_id, values in phases.running.items():
            rows += _samples("job_running", {**common, "job_id": job_id}, "", phases.grid, values)
        for job in phases.jobs:
            if job.throughput is not None:
                labels = {**common, "job_id": job.job_id}
                what, unit = job.throughput_metric, job.throughput_unit
                rows += _samples(what, labels, unit, phases.grid, job.throughput.values)
    return csv_text(SAMPLES, rows)


def _samples(
    metric: str, labels: Mapping[str, str], unit: str, grid: Grid, values: Values
) -> Iterator[_Row]:
    """The known values of a series: what they are, as PromQL has it, and its labels as JSON."""
    told = json.dumps(dict(sorted(labels.items())), ensure_ascii=False)
    for at, value in enumerate(values):
        if value is not None:
            when = datetime.fromtimestamp(grid.time(at), timezone.utc)
            yield when.isoformat(" ", "milliseconds")[:-6] + "Z", metric, told, value, unit


HOURS = (
    *("start", "end", "cluster", "job_id", "user", "account", "partition", "model"),
    *("state", "group", "gpu_hours", "cost", "currency"),
)
"""The columns of a goodput report: a row for each day or hour, owner and state."""


def goodput_json(goodput: Goodput) -> str:
    """A goodput report as JSON; times are Unix seconds, and null was not seen."""
    return json_text(
        {
            "kind": "goodput",
            "asked": goodput.asked,
            "clusters": goodput.clusters,
            "total": _use(goodput.total),
            "before": goodput.before and _use(goodput.before),
            "causes": [
                {
                    "cause": each.words,
                    "state": each.state,
                    "reason": each.reason,
                    "gpu_hours": each.seconds / 3600,
                    "cost": goodput.cost_of(each.seconds),
                    "places": {name: seconds / 3600 for name, seconds in each.worst},
                    "alerts": list(each.alerts),
                    "incidents": [one.number for one in behind(each, goodput.incidents)],
                }
                for each in goodput.causes
            ],
            "incidents": [
                {
                    "number": each.number,
                    "cluster": each.cluster,
                    "start": each.incident.start,
                    "end": None if each.incident.open else each.incident.end,
                    "nodes": each.incident.nodes,
                    "jobs": each.incident.jobs,
                    "what": each.incident.kinds,
                }
                for each in goodput.incidents
            ],
            "failures": [
                {
                    "cluster": each.cluster,
                    "job_id": each.job_id,
                    "ended": each.ended,
                    "how": each.how,
                    "lost_gpu_hours": _hours(each.lost),
                    "queued_seconds": each.queued,
                    "startup_gpu_hours": _hours(each.startup),
                    "gpus": each.gpus,
                }
                for each in goodput.attempts
            ],
            "tables": {
                name: [{"name": label.split("\0")[-1], **_use(use)} for label, use in uses.items()]
                for name, uses in goodput.tables.items()
            },
            "recorded_gpus": goodput.energy.recorded,
        }
    )


def goodput_csv(goodput: Goodput) -> str:
    """A goodput report as CSV: a row for each day or hour, owner and state."""
    ends = {each.start: each.end for each in goodput.ledger.bins}
    prices = goodput.asked.prices
    rows = []
    for key, seconds in sorted(goodput.ledger.rows.items()):
        price = prices.of(key.model)
        cost = None if price is None else price * seconds / 3600
        whose = (key.cluster, key.job_id, key.user, key.account, key.partition, key.model)
        what = (key.state, key.group, seconds / 3600, cost, prices.currency)
        rows.append((iso(key.start), iso(ends[key.start]), *whose, *what))
    return csv_text(HOURS, (row for row in rows if row[-3] > 0))


def _use(use: Use) -> dict[str, Any]:
    owner = use.owner
    return {
        "gpu_hours": use.seconds / 3600,
        "goodput": use.goodput,
        "effective_training_time_ratio": use.training_ratio,
        "cost": use.cost,
        "energy_joules": use.joules,
        "failures": len(use.attempts),
        "gpu_hours_by_group": {name: seconds / 3600 for name, seconds in use.groups.items()},
        "gpu_hours_by_state": {name: seconds / 3600 for name, seconds in use.states.items()},
        "cluster": owner.cluster if owner else None,
    }


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 3600


def _view(experiment: Experiment, side: Side) -> dict[str, Any]:
    return {
        "seconds_after_injection": {
            name: experiment.after(getattr(side.milestones, name).time) for name, _, _ in MOMENTS
        },
        "milestones": side.milestones,
        "diagnosis": side.diagnosis,
        "suspects": side.suspects,
        "firings": side.view.firings,
        "events": side.view.events,
        "hung": side.view.hung,
    }


def _series(experiment: Experiment, finding: Finding) -> dict[str, Any]:
    after = _after(experiment.fault.start)
    return {name: of(finding, after) for name, of in SERIES.items()}


def _after(zero: float) -> After:
    return lambda when: None if when is None else round(when - zero, 3)


def _cluster(cluster: ClusterRecovery) -> dict[str, Any]:
    known = {field.name: getattr(cluster, field.name) for field in dataclasses.fields(cluster)}
    incidents = [
        {
            "began": each.began,
            "nodes": each.incident.nodes,
            "open": each.incident.open,
            "signs": each.incident.signs,
            **{_snake(words): getattr(each, name) for name, words, _ in PHASES},
            "detected_by": each.detected_by,
            "downtime": each.downtime,
            "restored": each.restored,
            "jobs": each.jobs,
            "resolution": each.resolution,
        }
        for each in cluster.incidents
    ]
    return known | {"incidents": incidents}


def _plain(value: Any) -> Any:
    """Values that JSON knows; a component by its label."""
    if isinstance(value, Component):
        return value.label
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
