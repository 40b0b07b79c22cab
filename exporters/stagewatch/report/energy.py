"""Energy of GPUs over a period, by cluster and by the job that held them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.selectors import select
from stagewatch.report.history import Labels, milliseconds
from stagewatch.report.ledger import Ledger, window
from stagewatch.report.periods import minute
from stagewatch.report.progress import Progress

LOOK = 600.0
"""Seconds between two looks at who holds a GPU: its energy since the look before is theirs."""


@dataclass(slots=True)
class Energy:
    """Joules; empty where no GPU told its energy.

    `recorded` counts GPUs whose readings an agent replays from a recording: they are left out.
    """

    by_cluster: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    by_job: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    recorded: int = 0


def read_energy(api: PrometheusApi, ledger: Ledger, cluster: Labels, progress: Progress) -> Energy:
    """What the counters of GPUs (NVML's or DCGM's) and `gpu_job_info` tell.

    A GPU that several jobs share (MIG, MPS) counts for the cluster only.
    """
    energy = Energy()
    counter, held = select("gpu_energy_joules_total", **cluster), select("gpu_job_info", **cluster)
    replayed = select("gpu_info", **cluster, source="recorded")
    counted = f"count_over_time({replayed}[{window(ledger.period)}])"
    for found in api.query(f"count (count by (cluster, uuid) ({counted}))", ledger.period.end):
        energy.recorded = round(found.value)
    holders = f"max by (cluster, uuid, job_id) ({held})"
    alone = f"{holders} and on (cluster, uuid) count by (cluster, uuid) ({holders}) == 1"
    for each in ledger.bins:
        progress.step(f"energy, {minute(each.start)}")
        length = window(each)
        real = f"unless on (cluster, uuid) last_over_time({replayed}[{length}])"
        whole = f"sum by (cluster) (increase({counter}[{length}]) {real})"
        for found in api.query(whole, each.end):
            energy.by_cluster[found.labels.get("cluster", "")] += found.value
        step = min(LOOK, each.seconds)
        drawn = f"max by (cluster, uuid) (rate({counter}[{milliseconds(step)}]) {real})"
        joined = f"{drawn} * on (cluster, uuid) group_right () ({alone})"
        query = f"sum by (cluster, job_id) ({joined})"
        for track in api.query_range(query, each.start + step, each.end, step):
            job = track.labels.get("cluster", ""), track.labels.get("job_id", "")
            energy.by_job[job] += step * sum(value for _, value in track.samples)
    return energy
