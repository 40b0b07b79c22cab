"""Runs stagewatch's own Slurm parts against a cluster of the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stagewatch.core.commands import CommandRunner
from stagewatch.core.exposition import Samples
from stagewatch.host.procfs import Procfs, read_bytes
from stagewatch.slurm.cluster import Cluster, Timing
from stagewatch.slurm.transport.text import SlurmCli, environment
from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.cluster.independent import Numbers
from tests.waiting import wait_for

T = TypeVar("T")


def cli(slurm: SlurmCluster) -> SlurmCli:
    """The commands, asking this cluster and no other."""
    environ = environment(slurm.env)
    return SlurmCli(runner=lambda: CommandRunner(environ))


def observed(slurm: SlurmCluster, state_file: Path | None = None) -> Cluster:
    """The sources and ledgers of this cluster."""
    return Cluster(
        cli(slurm),
        Timing(timeout=30, jobs_interval=0, nodes_interval=0, accounting_interval=0),
        state_file=state_file,
    )


def step_daemon(slurm: SlurmCluster, job: str) -> int:
    """The process of a job's batch step."""
    proc = Procfs()

    def find() -> int | None:
        title, parent = f"slurmstepd: [{job}.batch]".encode(), slurm.daemons.keeper.pid
        for pid, stat in proc.stats(proc.pids()).items():
            line = read_bytes(f"/proc/{pid}/cmdline") if stat.parent == parent else None
            if line and line.startswith(title):
                return pid
        return None

    return slurm.wait(find, f"the step daemon of job {job}")


def numbers(samples: Samples, *leave_out: str) -> Numbers:
    """The samples that are plain numbers, keyed by metric name and label values."""
    return {
        (metric.name, *labels): value
        for metric, family in samples.families.items()
        if metric.name not in leave_out
        for labels, value in family.items()
        if isinstance(value, (int, float))
    }


def settled(ours: Callable[[], Numbers], theirs: Callable[[], Numbers]) -> tuple[Numbers, Numbers]:
    """Both readings of a cluster that did not change meanwhile."""

    def still() -> tuple[Numbers, Numbers] | None:
        before = theirs()
        mine = ours()
        return (mine, before) if theirs() == before else None

    return wait_for(still, "two equal readings, one after the other")
