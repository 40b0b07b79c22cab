"""What the agent costs the controller, as `sdiag` counts it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from stagewatch.core.errors import NoData
from stagewatch.slurm.cluster import Cluster, Timing
from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import Munge
from tests.cluster.independent import requests, requests_since
from tests.cluster.observing import cli
from tests.fake_clock import Clock
from tests.slurm.scene import REQUESTS

CYCLE = 15
CYCLES = 20  # 5 minutes, after which the least frequent source comes round again


@pytest.fixture(scope="module")
def quiet(keeper: Keeper, munge: Munge) -> SlurmCluster:
    """A controller that nobody else asks, not even a slurmd, with some jobs in its queue."""
    names = tuple(f"q{number}" for number in range(1, 5))
    spec = ClusterSpec(
        nodes=(NodeSpec(names, gpus=(("h200", 8),), real=False),),
        partitions=("gpu Nodes=q[1-4] Default=YES", "large Nodes=q[1-2]"),
        name="quiet",
        settings=(("Licenses", "matlab:3"),),
    )
    slurm = SlurmCluster(keeper, keeper.make_directory("slurm-quiet-"), spec, munge)
    slurm.start()
    slurm.submit("--hold", "--gpus=1")
    slurm.submit("--hold", "-p", "gpu,large", "--array=0-20")
    return slurm


@pytest.mark.parametrize("source", REQUESTS)
def test_a_source_costs_what_is_planned_for_it(quiet: SlurmCluster, source: str) -> None:
    """The plan of the cycles counts on these numbers."""
    before = requests(quiet)
    getattr(cli(quiet), source)(30)
    assert requests_since(quiet, before).total() == REQUESTS[source]


def test_no_cycle_asks_the_controller_for_more_than_four_requests(quiet: SlurmCluster) -> None:
    """Every source at its default interval, from the start of the agent on."""
    clock = Clock(0.0)
    cluster = Cluster(cli(quiet), Timing(timeout=30), clock=clock)
    every_cycle = (cluster.jobs, cluster.diagnostics, cluster.ping)
    every_cycle += (cluster.ended_jobs, cluster.node_events)
    of_cycles = []
    for cycle in range(2 * CYCLES):
        clock.now = cycle * CYCLE + 0.003
        before = requests(quiet)
        for source in (*every_cycle, *((cluster.nodes,) if cycle % 2 == 0 else ())):
            with suppress(NoData):  # not due yet, or no accounting
                source.refresh()
        of_cycles.append(requests_since(quiet, before))
    assert max(each.total() for each in of_cycles) == 4
    assert sum(of_cycles[CYCLES:], Counter()) == {
        "REQUEST_PARTITION_INFO": 30,  # squeue and scontrol show nodes ask for them too
        "REQUEST_JOB_INFO": 20,
        "REQUEST_NODE_INFO": 10,
        "REQUEST_STATS_INFO": 10,
        "REQUEST_PING": 5,
    }
