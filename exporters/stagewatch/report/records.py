"""The reports as JSON and CSV: easy to read back, and safe to open."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from stagewatch.core.words import printable
from stagewatch.report.components import Component
from stagewatch.report.deviations import Finding
from stagewatch.report.experiment import Experiment
from stagewatch.report.goodput import Goodput
from stagewatch.report.history import Grid, Values
from stagewatch.report.periods import iso

_FORMULA = ("=", "+", "-", "@")

IN_CSV = frozenset({"values", "severities", "past", "ledger"})
"""Fields that JSON leaves out, since they are as long as a series."""

SAMPLES = ("time", "metric", "labels", "value", "unit")
"""The columns of an experiment: a row for each sample."""

HOURS = (
    *("start", "end", "cluster", "job_id", "user", "account", "partition", "model"),
    *("state", "group", "gpu_hours", "cost", "currency"),
)
"""The columns of goodput: a row for each day or hour, owner and state."""

_Row = tuple[str, str, str, float, str]


def csv_text(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Comma-separated, quoted where needed; what is not known is empty.

    Text that a spreadsheet would read as a formula gets an apostrophe, and control characters,
    which would begin another cell, become blanks
    (https://owasp.org/www-community/attacks/CSV_Injection); numbers are left alone."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def json_text(value: Any) -> str:
    """Dataclasses as objects, with their properties; what is not known is null, never NaN.

    Times are Unix seconds, GPUs' time is in GPU-seconds.
    """
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def report_json(kind: str, report: Any) -> str:
    """A report as JSON."""
    return json_text({"kind": kind, **_plain(report)})


def experiment_csv(experiment: Experiment) -> str:
    """Every series that was judged: first its baseline, then the run."""
    run, before = experiment.grid, experiment.before
    count = max(0, min(before.count, before.index(run.start)))
    rows: list[_Row] = []
    for each in experiment.view.findings:
        for grid, values in ((before, each.past[:count]), (run, each.values)):
            rows += _samples(each, grid, values)
    return csv_text(SAMPLES, rows)


def _samples(series: Finding, grid: Grid, values: Values) -> Iterator[_Row]:
    """The known values of a series: what they are, as PromQL has it, and its labels as JSON."""
    labels = json.dumps(dict(sorted(series.labels.items())), ensure_ascii=False)
    for at, value in enumerate(values):
        if value is not None:
            when = datetime.fromtimestamp(grid.time(at), timezone.utc)
            time = when.isoformat(" ", "milliseconds")[:-6] + "Z"
            yield time, series.signal.source, labels, value, series.signal.unit


def goodput_csv(goodput: Goodput) -> str:
    """The GPU-hours of each day or hour, owner and state."""
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


def _plain(value: Any) -> Any:
    """Values that JSON knows; a component by its label."""
    if isinstance(value, Component):
        return value.label
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        names += [name for name, of in vars(type(value)).items() if isinstance(of, property)]
        return {name: _plain(getattr(value, name)) for name in names if name not in IN_CSV}
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
