"""What the agent costs the controller, as `sdiag` counts it."""

from __future__ import annotations

import pytest

from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import Munge
from tests.cluster.independent import requests, requests_since
from tests.cluster.observing import cli
from tests.slurm.scene import REQUESTS


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
