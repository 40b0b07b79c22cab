"""One small Slurm cluster, answered from a fixture, and one large one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Samples
from stagewatch.slurm import model
from stagewatch.slurm.cluster import Source
from stagewatch.slurm.notation import NodeGpus
from stagewatch.slurm.transport import accounting, diagnostics, text

CLUSTER = Path(__file__).parents[1] / "fixtures" / "slurm" / "cluster"
"""What the commands print of a small cluster."""
JOBS = text.parse_jobs((CLUSTER / "squeue.txt").read_bytes())
NODES = text.parse_nodes((CLUSTER / "scontrol_show_node.txt").read_bytes())
REQUESTS = {"jobs": 2, "nodes": 2, "diagnostics": 1, "ping": 1}
"""What each kind of data costs the controller, as counted by sdiag in tests/cluster."""


class Canned:
    """A client that answers from the fixture and counts requests to the controller."""

    def __init__(self) -> None:
        self.requests = 0
        self.down = False

    def _count(self, kind: str) -> None:
        self.requests += REQUESTS[kind]
        if self.down:
            raise SourceError("no controller")

    def jobs(self, timeout: float) -> model.Records[model.Job]:
        """The queue."""
        self._count("jobs")
        return JOBS

    def nodes(self, timeout: float) -> model.Records[model.Node]:
        """The nodes."""
        self._count("nodes")
        return NODES

    def diagnostics(self, timeout: float) -> model.Diagnostics:
        """The controller's statistics."""
        self._count("diagnostics")
        return diagnostics.parse_text((CLUSTER / "sdiag.txt").read_bytes())

    def ping(self, timeout: float) -> tuple[model.Controller, ...]:
        """The controllers."""
        self._count("ping")
        return text.parse_ping((CLUSTER / "scontrol_ping.txt").read_bytes())

    def ended_jobs(self, timeout: float, ago: float) -> model.Records[model.EndedJob]:
        """Ended runs."""
        return accounting.parse_jobs((CLUSTER / "sacct.txt").read_bytes())

    def node_events(self, timeout: float, ago: float) -> model.Records[model.NodeEvent]:
        """None."""
        return model.Records(())

    def close(self) -> None:
        """Nothing to close."""


def commands(directory: Path) -> None:
    """Write scripts that answer as Slurm's commands do of the small cluster."""
    scripts = {
        "squeue": f"cat {CLUSTER}/squeue.txt",
        "scontrol": f'[ "$1" = ping ] && cat {CLUSTER}/scontrol_ping.txt || '
        f"cat {CLUSTER}/scontrol_show_node.txt",
        "sdiag": f"cat {CLUSTER}/sdiag.txt",
        "sacct": f"cat {CLUSTER}/sacct.txt",
        "sacctmgr": "true",
        "sstat": "echo 1.0",
    }
    for name, line in scripts.items():
        script = directory / name
        script.write_text(f"#!/bin/sh\n{line}\n")
        script.chmod(0o755)


def known(source: Source[object]) -> None:
    """Ask a source though its phase has not come."""
    source._due = 0.0
    source.refresh()


def big_cluster() -> tuple[list[model.Job], list[model.Node]]:
    """10,000 nodes of 8 GPUs, 100,000 jobs of 5,000 users."""
    gpus = (NodeGpus("h200", 8, 8, tuple(range(8))),)
    node = replace(NODES.items[0], gpus=gpus, flags=frozenset())
    nodes = [
        replace(node, name=f"n{i:05}", partitions=(f"p{i % 20}", "all"), state="ALLOCATED")
        for i in range(10_000)
    ]
    base = JOBS.items[0]
    jobs = []
    for i in range(100_000):
        running = i < 20_000
        jobs.append(
            replace(
                base,
                job_id=i,
                user=f"u{i % 5000}",
                account=f"a{i % 700}",
                state="RUNNING" if running else "PENDING",
                reason="" if running else f"Reason{i % 300}",
                partitions=(f"p{i % 20}", "all") if i % 7 == 0 else (f"p{i % 20}",),
                node_list=f"n{i // 2:05}" if running else "",
                gpus=(("h200", 4),),
                restarts=i % 3,
            )
        )
    return jobs, nodes


def series(samples: Iterable[Samples]) -> int:
    """How many time series an exposition of these has."""
    return sum(
        1 if isinstance(value, (int, float)) else len(value.bounds) + 3
        for each in samples
        for family in each.families.values()
        for value in family.values()
    )
