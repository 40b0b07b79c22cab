"""Runs one scenario of the demo to its end, and has the report made while its server lives."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from stagewatch.cli import main
from stagewatch.core.processes import Children
from stagewatch.demo.sync_stall import JOB_ID
from stagewatch.prometheus.api import PrometheusApi

LIMIT_SECONDS = 1800.0
SETTLE_SECONDS = 30.0
"""After the scenario's end, so that alerts can clear."""

MORE = {"sync-stall": ["--baseline-steps", "120"]}
"""Arguments of single scenarios: a step of this one takes 0.5 s, and a baseline about a minute."""

_PROMETHEUS = re.compile(r"Prometheus\s+(http://[^/\s]+)")
_KEPT = "keeps running"


@dataclass(frozen=True)
class Run:
    """What is needed to report on a scenario that was played."""

    url: str
    fault_id: str
    began: float
    injected: float
    origin: str
    job_id: str


def play(name: str, directory: Path, more: list[str], *, recovery: bool) -> None:
    """Run a scenario and leave its report in a directory.  Raises `RuntimeError`."""
    directory.mkdir(parents=True, exist_ok=True)
    log, record = directory / "demo.log", directory / "record.json"
    record.unlink(missing_ok=True)
    log.write_text("")
    began = time.time()
    command = [sys.executable, "-m", "stagewatch.cli", "demo", "--scenario", name, "--keep"]
    with Children() as children:
        arguments = ["--json", str(record), *MORE.get(name, []), *more]
        process = children.start([*command, *arguments], log=log)
        try:
            _wait(process, log)
            time.sleep(SETTLE_SECONDS)
            _report(_run(log, record, began), directory, recovery=recovery)
        finally:
            _end(process)


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + LIMIT_SECONDS
    while _KEPT not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > limit:
            last = log.read_text(errors="replace").splitlines()[-1:]
            raise RuntimeError(f"the scenario came to no end: {' '.join(last)}")
        time.sleep(0.5)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The demo cleans up on SIGTERM; SIGINT is ignored where a shell began it behind."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=120)


def _run(log: Path, record: Path, began: float) -> Run:
    """What the record says, else what Prometheus does: the fault that was marked last."""
    url = _PROMETHEUS.search(log.read_text(errors="replace"))
    if url is None:
        raise RuntimeError("the demo named no Prometheus")
    said = json.loads(record.read_text()) if record.exists() else {}
    api = PrometheusApi(url[1])
    window = f"[{int(time.time() - began) + 1}s]"
    markers = api.query(f"max_over_time(fault_injection_start_timestamp_seconds{window})")
    api.close()
    if not markers:
        raise RuntimeError("no fault was marked")
    newest = max(markers, key=lambda each: each.value)
    origin = said.get("origin") or said.get("expected_origin") or {}
    return Run(
        url=url[1],
        fault_id=said.get("fault_id") or newest.labels["id"],
        began=said.get("t_baseline") or began,
        injected=said.get("t_inject") or newest.value,
        origin=_place(origin),
        job_id=said.get("job_id") or JOB_ID,
    )


def _place(origin: dict[str, str]) -> str:
    """As `--origin` takes it."""
    if "rank" in origin:
        return f"{origin.get('role', '')}:{origin['rank']}"
    names = ("mount", "directory", "target", "node", "role")
    return next((origin[name] for name in names if name in origin), "")


def _report(run: Run, directory: Path, *, recovery: bool) -> None:
    common = ["--prometheus", run.url, "--output", str(directory)]
    if recovery:
        given = ["report", "recovery", "--from", f"{run.began:.3f}", *common]
    else:
        baseline = f"{run.began:.3f}..{run.injected - 0.001:.3f}"
        given = ["report", "experiment", "--fault", run.fault_id, "--baseline", baseline]
        given += ["--job", run.job_id, "--origin", run.origin, "--after", "1h", *common]
    status = main(given)
    if status:
        raise RuntimeError(f"the report ended with status {status}")
