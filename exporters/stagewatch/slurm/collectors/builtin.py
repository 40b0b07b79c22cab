"""What Slurm's own metrics endpoint says, beside what the agent counts itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Metric, Samples
from stagewatch.slurm.source import Source

if TYPE_CHECKING:
    from stagewatch.slurm.context import SlurmContext
    from stagewatch.slurm.transport.builtin import Builtin

JOBS = Metric(
    "slurm_builtin_jobs",
    "gauge",
    "Jobs by state as slurmctld's own endpoint counts them (an array's pending tasks are one).",
    ("state",),
)
NODES = Metric(
    "slurm_builtin_nodes",
    "gauge",
    "Nodes by state or flag as slurmctld's own endpoint counts them.",
    ("state",),
)
CYCLE_SECONDS = Metric(
    "slurm_builtin_scheduler_cycle_seconds_total",
    "counter",
    "Time spent in main scheduling cycles, which sdiag gives as a mean only.",
)
BACKFILL_SECONDS = Metric(
    "slurm_builtin_backfill_cycle_seconds_total", "counter", "Time spent in backfill cycles."
)
EXITS = Metric(
    "slurm_builtin_scheduler_exits_total",
    "counter",
    "Scheduling cycles by why they ended (end of the queue, a limit, a time-out).",
    ("scheduler", "reason"),
)
_NOT_STATES = frozenset(("cpus_alloc", "memory_alloc", "nodes_alloc"))


class BuiltinCollector(Collector):
    """Shows the endpoint's figures, under names of our own."""

    def __init__(self, source: Source[Builtin] | None) -> None:
        self._source = source

    def collect(self) -> Samples:
        """Read the endpoint, if its address is known."""
        if self._source is None:
            raise NoData("no --builtin-url was given")
        found = self._source.refresh()
        out = Samples()
        for state, number in found.by_suffix("jobs_").items():
            if state not in _NOT_STATES:
                out.add(JOBS, number, state)
        for state, number in found.by_suffix("nodes_").items():
            out.add(NODES, number, state)
        for metric, name in (
            (CYCLE_SECONDS, "schedule_cycle_tot"),
            (BACKFILL_SECONDS, "bf_cycle_tot"),
        ):
            micros = found.values.get(name)
            out.add(metric, None if micros is None else micros * 1e-6)
        for prefix, scheduler in (("sched_exit_", "main"), ("bf_exit_", "backfill")):
            for reason, number in found.by_suffix(prefix).items():
                out.add(EXITS, number, scheduler, reason)
        return out


def _build(options: NoOptions, context: SlurmContext) -> Collector:
    return BuiltinCollector(context.cluster.builtin)


SPEC = CollectorSpec(
    name="slurm_builtin",
    help="slurmctld's own metrics endpoint (Slurm 25.11 and later; needs --builtin-url)",
    interval=60,
    options=NoOptions,
    build=_build,
)
