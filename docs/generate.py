"""Writes docs/metrics.md out of the code: `python docs/generate.py`; `--check` only compares."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import stagewatch
from stagewatch.core.exposition import Metric

TARGET = Path(__file__).parent / "metrics.md"
HEAD = """\
# Metrics

`python docs/generate.py` writes this page from the code, and `make check` compares. Service
discovery adds `cluster` and `node` to every series; the tables leave them out. A name ends with its
unit: `_seconds`, `_bytes`, `_ratio` of 1, `_celsius`, `_watts`, `_joules`, `_hertz`; a counter has
`_total` behind it. A metric without a unit counts what its meaning says, or is 1 for yes and 0 for
no.
"""


def tables() -> dict[str, list[Metric]]:
    """The metrics that each room declares, by the name of the room."""
    rooms: dict[str, list[Metric]] = {}
    for module in pkgutil.walk_packages(stagewatch.__path__, "stagewatch."):
        if module.name.startswith(("stagewatch.client.hooks", "stagewatch.__main__")):
            continue
        if module.name.endswith(".janitor"):  # programs, not modules to import
            continue
        content = vars(importlib.import_module(module.name)).values()
        metrics = [
            item
            for value in content
            for item in (value.values() if isinstance(value, dict) else [value])
            if isinstance(item, Metric)
        ]
        if metrics:
            rooms.setdefault(module.name.split(".")[1], []).extend(metrics)
    return rooms


def document() -> str:
    """The whole page; a metric stands under the first room that holds it."""
    parts = [HEAD]
    seen: set[str] = set()
    for room, metrics in tables().items():
        new = sorted({m.name: m for m in metrics if m.name not in seen}.values(), key=_name)
        if not new:
            continue
        seen |= {metric.name for metric in new}
        parts.append(f"\n## {room}\n")
        parts.append("| metric | type | labels | meaning |\n| --- | --- | --- | --- |")
        for metric in new:
            labels = ", ".join(metric.labels)
            help = metric.help.replace("|", "\\|")
            parts.append(f"| `{metric.name}` | {metric.kind} | {labels} | {help} |")
    return "\n".join(parts) + "\n"


def _name(metric: Metric) -> str:
    return metric.name


if __name__ == "__main__":
    text = document()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text() != text:
            sys.exit("docs/metrics.md is out of date: run python docs/generate.py")
    else:
        TARGET.write_text(text)
