"""The values behind a report in long form, a row for each sample: `series.csv`, `series.parquet`.

pyarrow writes both, and is imported only here and only when one of them is asked for.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from stagewatch.report.experiment import Experiment
from stagewatch.report.goodput import Goodput
from stagewatch.report.history import Grid, Values
from stagewatch.report.ledger import Key
from stagewatch.report.recovery import Recovery

FORMATS = ("csv", "parquet")


class Series(NamedTuple):
    """One series: what its values are, as PromQL has it, its labels, and its values on a grid."""

    metric: str
    labels: Mapping[str, str]
    unit: str
    grid: Grid
    values: Values


def experiment_series(experiment: Experiment) -> Iterator[Series]:
    """Every series that was judged: in the time of the baseline, then in that of the run."""
    run = experiment.grid
    count = max(0, min(experiment.before.count, experiment.before.index(run.start)))
    before = Grid(experiment.before.start, experiment.before.step, count)
    for each in experiment.full.view.findings:
        labels = dict(each.labels) | ({"source": "recorded"} if each.recorded else {})
        metric, unit = each.signal.source, each.signal.unit
        yield Series(metric, labels, unit, before, each.past[:count])
        yield Series(metric, labels, unit, run, each.values)


def recovery_series(recovery: Recovery) -> Iterator[Series]:
    """Of each incident that has a section: whether its jobs ran, and their throughput."""
    for cluster, phases, name in recovery.shown():
        common = {"cluster": cluster.cluster, "incident": name}
        for job_id, values in phases.running.items():
            yield Series("job_running", {**common, "job_id": job_id}, "", phases.grid, values)
        for job in phases.jobs:
            if job.throughput is not None:
                labels = {**common, "job_id": job.job_id}
                values = job.throughput.values
                yield Series(
                    job.throughput_metric, labels, job.throughput_unit, phases.grid, values
                )


def goodput_series(goodput: Goodput) -> Iterator[Series]:
    """GPU-hours of each owner and state, by day or by hour."""
    ledger = goodput.ledger
    begin = math.floor(ledger.period.start / ledger.step) * ledger.step
    grid = Grid(begin, ledger.step, len(ledger.bins))
    lines: dict[Key, list[float | None]] = {}
    for key, seconds in ledger.rows.items():
        if seconds > 0:
            values = lines.setdefault(key._replace(start=begin), [None] * grid.count)
            values[math.floor((key.start - begin) / ledger.step)] = seconds / 3600
    for key, values in sorted(lines.items()):
        names = ("cluster", "job_id", "user", "account", "partition", "model", "state")
        labels = {name: str(getattr(key, name)) for name in names if getattr(key, name)}
        yield Series("goodput_gpu_hours", labels, "h", grid, values)


def written(series: Iterable[Series], formats: Iterable[str]) -> dict[str, bytes]:
    """The files, by name; columns time (UTC), metric, labels (a JSON object), value and unit."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    stamp = pyarrow.timestamp("ms", "UTC")
    words = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    schema = pyarrow.schema(
        [
            ("time", stamp),
            ("metric", words),
            ("labels", words),
            ("value", pyarrow.float64()),
            ("unit", words),
        ]
    )
    batches = []
    for each in series:
        known = [(at, value) for at, value in enumerate(each.values) if value is not None]
        count = len(known)
        labels = json.dumps(dict(sorted(each.labels.items())), ensure_ascii=False)
        columns = [
            pyarrow.array([round(1000 * each.grid.time(at)) for at, _ in known], stamp),
            *(pyarrow.array([text] * count, words) for text in (each.metric, labels)),
            pyarrow.array([value for _, value in known], pyarrow.float64()),
            pyarrow.array([each.unit] * count, words),
        ]
        batches.append(pyarrow.record_batch(columns, schema))
    table = pyarrow.Table.from_batches(batches, schema)
    files = {}
    for format in formats:
        file = io.BytesIO()
        if format == "parquet":
            pyarrow.parquet.write_table(table, file, compression="zstd")
        else:
            pyarrow.csv.write_csv(table, file)
        files[f"series.{format}"] = file.getvalue()
    return files
