"""What other rules say of a job whose life is acted out: promtool evaluates them rule by rule, as
Prometheus does.

vmalert's replay takes one rule at a time over the whole range, which is wrong for rules that read
their own last value.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from stagewatch.core.exposition import Histogram, Labels, Metric, Samples
from tests.bench.replay_judge import Episode
from tests.bench.replay_series import DAY, Job, See

SEEN = 'ALERTS{alertstate="firing", job_id!=""}'
Columns = dict[str, list[str | None]]
"""By series: its values at consecutive scrapes."""


class Scrapes:
    """The series of a job that some rules read, as scraped at different intervals."""

    def __init__(self, name: str, intervals: Sequence[int], rules: Sequence[Path]) -> None:
        self._labels = f'cluster="replay",node="{name}"'
        self._used = set(re.findall(r"\brl_\w+", "".join(file.read_text() for file in rules)))
        self._names: dict[tuple[Metric, Labels], str] = {}
        self.columns: dict[int, Columns] = {every: {} for every in intervals}

    def see(self, _: Job, now: int, out: Samples) -> float:
        """A look of the agent, and the scrapes that see it."""
        values = {f'up{{job="stagewatch",{self._labels}}}': "1"} | dict(self._flat(out))
        for every, columns in self.columns.items():
            for name, value in values.items() if now % every == 0 else ():
                column = columns.setdefault(name, [])
                column += [None] * (now // every - len(column))
                column.append(value)
        return now

    def _flat(self, out: Samples) -> Iterator[tuple[str, str]]:
        """Series that the rules read, with what service discovery adds, and their values."""
        for metric, family in out.families.items():
            for labels, value in family.items() if metric.name in self._used else ():
                if not isinstance(value, Histogram):  # no rule here reads a bucket
                    yield self._name(metric, labels), f"{value:.12g}"

    def _name(self, metric: Metric, labels: Labels) -> str:
        """The text of a series."""
        text = self._names.get((metric, labels))
        if text is None:
            pairs = zip(metric.labels, labels, strict=True)
            told = [
                self._labels,
                *(f"{name}={json.dumps(value)}" for name, value in pairs if value),
            ]
            text = self._names[metric, labels] = f"{metric.name}{{{','.join(told)}}}"
        return text


def replay_rules(
    lived: Callable[[See], Job], name: str, intervals: Sequence[int], rules: Sequence[Path]
) -> tuple[Job, dict[int, list[Episode]]]:
    """A job, and the alerts of its whole life by interval; `lived` makes it and acts its days."""
    scrapes = Scrapes(name, intervals, rules)
    job = lived(scrapes.see)
    return job, {n: evaluate(job, n, columns, rules) for n, columns in scrapes.columns.items()}


def evaluate(job: Job, every: int, columns: Columns, rules: Sequence[Path]) -> list[Episode]:
    """What promtool sees at an interval."""
    seconds = int(job.span)
    test = {
        "rule_files": [str(file) for file in rules],
        "evaluation_interval": f"{every}s",
        "group_eval_order": [
            name
            for file in rules
            for name in re.findall(r"^  - name: ([\w-]+)", file.read_text(), re.M)
        ],
        "tests": [
            {
                "interval": f"{every}s",
                "input_series": [
                    {"series": one, "values": notation(column, seconds // every)}
                    for one, column in columns.items()
                ],
                # What is not expected is printed.
                "promql_expr_test": [
                    {"expr": SEEN, "eval_time": f"{time}s"} for time in range(0, seconds, every)
                ],
            }
        ],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(test, file)  # JSON is YAML
        file.flush()
        done = subprocess.run(
            ["promtool", "test", "rules", file.name],
            # A fifth of promtool's time goes into tidying up memory otherwise.
            env={"GOGC": "400", **os.environ},
            capture_output=True,
            text=True,
        )
    output = done.stdout + done.stderr
    seen = re.findall(r"time: (\S+),\s+exp: nil\s+got: (.*)", output)
    if (done.returncode != 0) != bool(seen):
        raise SystemExit(output[-2000:])
    last: dict[tuple[str, str], float] = {}
    episodes = []
    for text, got in seen:
        time = _seconds(text)
        for one in re.findall(r"{([^}]*)}", got):
            labels: dict[str, str] = dict(re.findall(r'(\w+)="([^"]*)"', one))
            key = labels["job_id"], labels["alertname"]
            if time - last.get(key, -DAY) > every:
                evidence = labels.get("evidence", labels.get("stage", ""))
                page = labels.get("severity") == "critical"
                episodes.append(Episode(job.name, key[1], time, evidence, page))
            last[key] = time
    return episodes


def notation(column: list[str | None], scrapes: int) -> str:
    """Values of so many scrapes as promtool takes them; what is missing after one goes stale."""
    parts = []
    for value, run in itertools.groupby([*column, *[None] * (scrapes - len(column))]):
        count = len(list(run))
        if value is not None:
            parts.append(value if count == 1 else f"{value}x{count - 1}")
            continue
        if parts:
            parts.append("stale")
            count -= 1
        if count:
            parts.append(f"_x{count}")
    return " ".join(parts)


def _seconds(text: str) -> float:
    """A duration as promtool prints it: 1h2m3s."""
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
    return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)(ms|[dhms])", text))
