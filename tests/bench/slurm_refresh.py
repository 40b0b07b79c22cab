"""Runs the Slurm agent's collectors round by round, and says what each round cost.

A process of its own, so that its peak memory is the agent's.  Prints one JSON object a line: one
for each round, then one with the port that answers scrapes until standard input ends.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from stagewatch.core.runner import Job, Runner
from stagewatch.slurm.agent import collector_specs
from stagewatch.slurm.context import SlurmOptions, slurm_context
from stagewatch.web.agent_server import AgentServer


def main(bin_dir: str, rounds: int) -> None:
    """`bin_dir` is where Slurm's commands are."""
    with tempfile.TemporaryDirectory() as state:
        options = SlurmOptions(bin_dir=Path(bin_dir), state_dir=Path(state), timeout=300.0)
        context = slurm_context(options)
        jobs = [
            Job(
                spec.name,
                spec.make({each.key: each.default for each in spec.settings()}, context),
                3600.0,
            )
            for spec in collector_specs()
            if spec.default
        ]
        cluster = context.cluster
        for _ in range(rounds):
            for source in (cluster.jobs, cluster.nodes, cluster.ended_jobs, cluster.node_events):
                source._due = time.monotonic()  # now, and not again within the round
            before = _used()
            for job in jobs:
                job.run_once()
            after = _used()
            print(
                json.dumps(
                    {
                        "agent_cpu": after[0] - before[0],
                        "commands_cpu": after[1] - before[1],
                        "failed": [job.name for job in jobs if job.error],
                    }
                ),
                flush=True,
            )
        server = AgentServer(("127.0.0.1", 0), Runner(jobs), node="bench")
        server.start()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"port": server.port, "peak": peak}), flush=True)
        sys.stdin.read()
        server.close()


def _used() -> tuple[float, float]:
    """CPU seconds of this process and of its ended children."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
