"""Every panel of the boards over 1,024 nodes x 8 GPUs x 8 ranks, asked of a real Prometheus.

It holds the series that the boards ask for, of one job on all nodes; of labels beyond those of
nodes, GPUs and ranks a few values.  STAGEWATCH_BENCH_NODES makes the cluster smaller; the figures
then say how many nodes they are of.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import requests

from stagewatch.core.processes import Children
from stagewatch.dashboards.panels import MOST_SERIES
from stagewatch.demo.prometheus import arguments
from stagewatch.demo.stack import free_port
from stagewatch.prometheus.api import PrometheusApi
from tests.dashboards.boards import NAMES, data_panels, filled, load
from tests.dashboards.cardinality import GPUS, RANKS, TOLD_BY, labels_of
from tests.waiting import becomes

NODES = int(os.environ.get("STAGEWATCH_BENCH_NODES", "1024"))
SAMPLES = 4
SCRAPE_SECONDS = 15
MOST_OTHERS = 6
"""Combinations of the other labels that a node, GPU or rank has."""
MOST_WITHOUT_NODE = 5000


def main() -> None:
    """Fill a Prometheus, ask it every query of every panel, and print a line for each board."""
    panels = [(name, panel) for name in NAMES for panel in data_panels(load(name))]
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        end = int(time.time()) // SCRAPE_SECONDS * SCRAPE_SECONDS - 60
        series = _fill(place, end, [target["expr"] for _, p in panels for target in p["targets"]])
        print(f"{NODES} nodes, {series} series")
        children = Children()
        try:
            port = free_port()
            config = place / "prometheus.yml"
            config.write_text("global: {}\n")
            binary = shutil.which("prometheus") or "prometheus"
            children.start(arguments([binary], config, port), log=place / "log")
            url = f"http://127.0.0.1:{port}"
            if not becomes(PrometheusApi(url).ready, 300):
                raise SystemExit((place / "log").read_text())
            _ask_all(url, end, panels)
        finally:
            children.stop()


def _ask_all(url: str, end: int, panels: list[tuple[str, dict[str, Any]]]) -> None:
    by_board: dict[str, list[tuple[int, float, str]]] = defaultdict(list)
    for name, panel in panels:
        began = time.monotonic()
        count = sum(_ask(url, end, target) for target in panel["targets"])
        by_board[name].append((count, time.monotonic() - began, panel["title"]))
    for name, measured in by_board.items():
        most = max(measured)
        slowest = max(measured, key=lambda each: each[1])
        empty = sum(count == 0 for count, _, _ in measured)
        print(
            f"{name:<18} {len(measured):3} panels, {empty} without data; most series {most[0]:3} "
            f"({most[2]}); slowest {slowest[1]:.1f} s ({slowest[2]})",
            flush=True,
        )
    many = [each for measured in by_board.values() for each in measured if each[0] > MOST_SERIES]
    if many:
        raise SystemExit(f"more than {MOST_SERIES} series: {many}")


def _ask(url: str, end: int, target: dict[str, Any]) -> int:
    """How many series a query returns; of a range over the last minutes that have samples."""
    parameters = {"query": filled(target["expr"], job_id="1")}
    if target["instant"]:
        path = "query"
        parameters |= {"time": str(end)}
    else:
        path = "query_range"
        start = end - SAMPLES * SCRAPE_SECONDS
        parameters |= {"start": str(start), "end": str(end), "step": str(SCRAPE_SECONDS)}
    answer = requests.post(f"{url}/api/v1/{path}", data=parameters, timeout=300).json()
    if answer["status"] != "success":
        raise SystemExit(f"{target['expr']}: {answer['error']}")
    return len(answer["data"]["result"])


def _fill(directory: Path, end: int, expressions: list[str]) -> int:
    """Write the blocks of Prometheus's data, and return the number of series."""
    names, literals = _asked_for(expressions)
    text = directory / "openmetrics"
    series = 0
    with text.open("w") as out:
        for name in sorted(names):
            counter = name.endswith("_total")
            out.write(f"# TYPE {name.removesuffix('_total')} {'counter' if counter else 'gauge'}\n")
            for number, labels in enumerate(_label_sets(set(labels_of(name)), literals)):
                series += 1
                listed = ",".join(f'{label}="{value}"' for label, value in labels if value)
                base = number * 7919 % 1000 / 1000
                for turn in range(SAMPLES):
                    value = base + turn * (base + 0.1) if counter else base
                    when = end - (SAMPLES - 1 - turn) * SCRAPE_SECONDS
                    out.write(f"{name}{{{listed}}} {value:g} {when}\n")
        out.write("# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text)]
    subprocess.run([*command, str(directory / "tsdb")], check=True, stdout=subprocess.DEVNULL)
    text.unlink()
    return series


def _asked_for(expressions: list[str]) -> tuple[set[str], dict[str, list[str]]]:
    """The series that expressions name, and the values of labels that they choose."""
    names: set[str] = set()
    literals: dict[str, list[str]] = defaultdict(list)

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql_parser.VectorSelector) and node.name:
            names.add(node.name)
            for matcher in node.matchers.matchers:
                if re.fullmatch(r"[\w|]*", matcher.value):
                    for value in matcher.value.split("|"):
                        if value not in literals[matcher.name]:
                            literals[matcher.name].append(value)
        return True

    for expression in expressions:
        promql_parser.walk(promql_parser.parse(filled(expression, job_id="1")), visit)
    return names, literals


def _label_sets(
    labels: set[str], literals: dict[str, list[str]]
) -> Iterator[list[tuple[str, str]]]:
    """The label sets of a series, each node, GPU and rank with those of the other labels."""
    fixed = {"cluster": "lab", "job_id": "1", "role": "train", "mig": "", "notify": ""}
    fixed |= {"job": "stagewatch", "partition": "gpu", "alertstate": "firing"}
    placed = {"node", "instance", "rack", "gpu", "uuid", "rank", "local_rank", "pid", "serial"}
    told = {label for label in labels - placed - fixed.keys() if TOLD_BY.get(label) in labels}
    others = sorted(labels - placed - fixed.keys() - told)
    values = [[v for v in literals[label] if v] or ["a", "b"] for label in others]
    combinations = list(
        itertools.islice(itertools.product(*values), MOST_OTHERS)
        if "node" in labels
        else itertools.islice(itertools.product(*values), MOST_WITHOUT_NODE)
    )
    constant = [(label, value) for label, value in fixed.items() if label in labels]
    units = GPUS if labels & {"gpu", "uuid"} else RANKS if "rank" in labels else 1
    for node in range(NODES) if "node" in labels else (0,):
        for unit in range(units):
            here = {
                "node": f"n{node}",
                "instance": f"n{node}:9410",
                "rack": f"r{node // 32}",
                "gpu": str(unit),
                "uuid": f"GPU-{node}-{unit}",
                "rank": str(node * RANKS + unit),
                "local_rank": str(unit),
                "pid": str(node * RANKS + unit),
                "serial": f"{node}{unit}",
            }
            place = [(label, value) for label, value in here.items() if label in labels]
            for combination in combinations:
                rest = dict(zip(others, combination, strict=True))
                follow = {label: f"of {rest.get(TOLD_BY[label], 'it')}" for label in told}
                yield [*constant, *place, *rest.items(), *follow.items()]
