"""What GPUs cost: money by the hour and model of GPU, and energy by cluster and job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from stagewatch.core.config import number
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.selectors import select
from stagewatch.report.history import Labels, milliseconds
from stagewatch.report.ledger import PIECE, Ledger, split, window

OTHER = "other"
"""Every model that has no price of its own."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a GPU-hour by the short name of the model, as in `slurm_node_gpus`."""

    by_model: Mapping[str, float]
    currency: str

    def of(self, model: str) -> float | None:
        """The price of a GPU-hour; None where the site gave none."""
        return self.by_model.get(model, self.by_model.get(OTHER))


def prices(value: object) -> tuple[tuple[str, float], ...]:
    """an amount of money above zero, as 2.50; or one for each model of GPU, as h100=2.50,other=1"""
    if isinstance(value, str) and "=" in value:
        pairs = (each.split("=") for each in value.split(","))
        return tuple((model.strip(), number(amount)) for model, amount in pairs)
    return () if value in ("", None) else ((OTHER, number(value)),)


HOURLY_LOOK, DAILY_LOOK = 600.0, 1800.0
"""Seconds between two looks at who holds a GPU, in a short period and in a long one: its energy
since the look before is theirs.  A look at thousands of GPUs takes a server a tenth of a second."""


@dataclass(slots=True)
class Energy:
    """Joules; empty where no GPU told its energy.

    `recorded` counts GPUs whose readings an agent replays from a recording: they are left out.
    """

    by_cluster: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    by_job: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    recorded: int = 0


def read_energy(api: PrometheusApi, ledger: Ledger, cluster: Labels) -> Energy:
    """What the counters of GPUs (NVML's or DCGM's) and `gpu_job_info` tell.

    A GPU that several jobs share (MIG, MPS) counts for the cluster only.
    """
    energy = Energy()
    counter, held = select("gpu_energy_joules_total", **cluster), select("gpu_job_info", **cluster)
    replayed = select("gpu_info", **cluster, source="recorded")
    counted = f"count_over_time({replayed}[{window(ledger.period)}])"
    for found in api.query(f"count (count by (cluster, uuid) ({counted}))", ledger.period.end):
        energy.recorded = round(found.value)
    shared = f"count by (cluster, uuid) ({held}) > 1"
    look = HOURLY_LOOK if ledger.hourly else DAILY_LOOK
    for each in ledger.bins:
        length = window(each)
        # Joins are what costs most: none for recordings where there is none.
        real = f"unless on (cluster, uuid) last_over_time({replayed}[{length}])"
        real = real if energy.recorded else ""
        whole = f"sum by (cluster) (increase({counter}[{length}]) {real})"
        for found in api.query(whole, each.end):
            energy.by_cluster[found.labels.get("cluster", "")] += found.value
        for piece in split(each, PIECE):
            step = min(look, piece.seconds)
            drawn = f"max by (cluster, uuid) (rate({counter}[{milliseconds(step)}]) {real})"
            joined = f"({held} unless on (cluster, uuid) ({shared})) "
            joined += f"* on (cluster, uuid) group_left () {drawn}"
            query = f"sum by (cluster, job_id) ({joined})"
            for track in api.query_range(query, piece.start + step, piece.end, step):
                job = track.labels.get("cluster", ""), track.labels.get("job_id", "")
                energy.by_job[job] += step * sum(value for _, value in track.samples)
    return energy
