"""Servers filled with a history: what a scrape would have stored, written by hand."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.deploy.engine import need
from tests.deploy.store import Prometheus
from tests.waiting import answers, wait_for

Value = Callable[[float], float | None]
"""The value at a time; None: no sample then."""
BLOCKS = "--max-block-duration=1458h"
"""promtool reads the whole text once for each block, of two hours unless it is told otherwise."""


@dataclass
class Past:
    """Series over the same times, `step` seconds apart."""

    start: float
    end: float
    step: float = 2.0
    series: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, value: float | Value, /, **labels: object) -> None:
        """One series."""
        pairs = ",".join(
            f"{key}={json.dumps(str(text), ensure_ascii=False)}" for key, text in labels.items()
        )
        lines = self.series.setdefault(name, [])
        for when in self.times():
            at = value(when) if callable(value) else value
            if at is not None:
                lines.append(f"{name}{{{pairs}}} {at!r} {when:.3f}")

    def times(self) -> Iterable[float]:
        """When samples are taken."""
        count = int((self.end - self.start) / self.step) + 1
        return (self.start + at * self.step for at in range(count))

    def openmetrics(self) -> str:
        """The text that promtool makes blocks of."""
        parts = []
        for name, lines in self.series.items():
            parts += [f"# TYPE {name} unknown", *lines]
        return "\n".join([*parts, "# EOF\n"])

    def milliseconds(self) -> str:
        """The text that VictoriaMetrics imports."""
        lines = []
        for line in (line for lines in self.series.values() for line in lines):
            text, when = line.rsplit(" ", 1)
            lines.append(f"{text} {round(float(when) * 1000)}")
        return "\n".join(lines) + "\n"


def filled_prometheus(
    children: Children,
    directory: Path,
    *pasts: Past,
    lookback: str = "5m",
    targets: Sequence[str] = (),
) -> str:
    """The URL of a Prometheus that has the histories, and scrapes the targets each second.

    `lookback`: how long a series that ends is still seen, as nothing marks its end.
    """
    need("prometheus", "promtool")
    directory.mkdir()
    text = directory / "past.om"
    for past in pasts:
        text.write_text(past.openmetrics())
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", BLOCKS, "openmetrics", text,
             directory / "data"],
            check=True,
            capture_output=True,
        )  # fmt: skip
    jobs = [{"job_name": "judges", "static_configs": [{"targets": list(targets)}]}]
    config = json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs})
    flags = f"--query.lookback-delta={lookback}", "--storage.tsdb.retention.time=10y"
    return Prometheus(children, directory, config, *flags).url


def filled_store(children: Children, directory: Path, *pasts: Past) -> str:
    """The URL of a VictoriaMetrics that has the histories."""
    need("victoria-metrics")
    directory.mkdir()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    children.start(
        [
            "victoria-metrics",
            f"-httpListenAddr=127.0.0.1:{port}",
            f"-storageDataPath={directory / 'data'}",
            "-retentionPeriod=10y",
            "-memory.allowedBytes=256MiB",
        ],
        log=directory / "store.log",
    )
    wait_for(lambda: answers(f"{url}/health"), "the store answers")
    for past in pasts:
        _post(f"{url}/api/v1/import/prometheus", past.milliseconds())
    _post(f"{url}/internal/force_flush", "")
    return url


def _post(url: str, body: str) -> None:
    with urllib.request.urlopen(url, data=body.encode(), timeout=60) as answer:
        answer.read()
