"""What a report of an experiment costs: time and memory, beside what the server alone takes.

A Prometheus is filled with an hour of a job sampled every second, of 48 ranks and of 256; the
server's own time for the same queries stands beside the report's.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path

from stagewatch.core.processes import Children
from stagewatch.prometheus.api import PrometheusApi, Track
from stagewatch.report import figures, pages, records
from stagewatch.report.experiment import Wanted, make_experiment
from tests.bench.table import row
from tests.report.filled import Past, filled_prometheus

RANKS = (48, 256)
SECONDS = 1800
GAUGES = (
    "rl_rank_progress_age_seconds",
    "rl_rank_resident_memory_bytes",
    "rl_rank_tcp_rtt_seconds",
)
COUNTERS = ("rl_rank_cpu_seconds_total", "rl_rank_run_queue_seconds_total")


class Timed(PrometheusApi):
    """Adds up how long the server was waited for, reading its answer included."""

    waited = 0.0

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Track]:
        began = time.perf_counter()
        found = super().query_range(expression, start, end, step)
        self.waited += time.perf_counter() - began
        return found


def main() -> None:
    """Print time and memory for each size."""
    for ranks in RANKS:
        with tempfile.TemporaryDirectory() as directory, Children() as children:
            url = filled_prometheus(children, Path(directory) / "p", _job(ranks))
            # In a process of its own: what counts is its peak.
            receive, send = multiprocessing.Pipe()
            child = multiprocessing.get_context("spawn").Process(target=_measure, args=(url, send))
            child.start()
            whole, waited, series, peak = receive.recv()
            child.join()
        row(f"{ranks} ranks: series with a baseline", series, "")
        row(f"{ranks} ranks: report, all of it", whole, "s")
        row(f"{ranks} ranks: of that, waiting for the server", waited, "s")
        row(f"{ranks} ranks: peak memory", peak, "MiB")


def _measure(url: str, send: object) -> None:
    began = time.perf_counter()
    api = Timed(url, timeout=300)
    experiment = make_experiment(api, Wanted("bench", baseline="15m-before"))
    drawn = figures.experiment_figures(experiment)
    inline = {name: [each.inline() for each in widths] for name, widths in drawn.items()}
    pages.experiment_page(experiment, inline)
    records.experiment_json(experiment)
    records.experiment_csv(experiment)
    whole = time.perf_counter() - began
    series = sum(each.baseline is not None for each in experiment.full.view.findings)
    # Not getrusage's: that survives exec, and is the parent's.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    send.send((whole, api.waited, series, peak))  # type: ignore[attr-defined]


def _job(ranks: int) -> Past:
    start = time.time() // 1000 * 1000 - 2 * SECONDS
    injected = start + SECONDS / 2
    past = Past(start, start + SECONDS, step=1.0)
    past.add("up", 1.0, cluster="c", job="stagewatch", node="n")
    for name, value in (("active", 1.0), ("start_timestamp_seconds", injected)):
        past.add(
            f"fault_injection_{name}",
            lambda when, value=value: value if injected <= when < injected + 300 else None,
            cluster="c",
            id="bench",
            **({"target_worker": "train_worker_5"} if name == "active" else {}),
        )
    for rank in range(ranks):
        who = {"cluster": "c", "job_id": "1", "node": "n", "role": "train", "rank": rank}
        past.add("rl_rank_info", 1.0, **who)
        past.add("rl_rank_up", 1.0, **who)
        past.add("rl_rank_stage_code", 5.0, **who)
        past.add("rl_rank_stage_open_seconds", lambda when: when % 20, **who, stage="train")
        for at, gauge in enumerate(GAUGES):
            past.add(gauge, lambda when, at=at: (when * (at + 3)) % 17, **who)
        for counter in COUNTERS:
            past.add(counter, lambda when: (when - start) * 0.5, **who)
    return past


if __name__ == "__main__":
    main()
