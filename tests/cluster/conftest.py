"""A real Slurm cluster for these tests, one for all of them; it ends with the last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import Accounting, Munge, missing

LAB = ClusterSpec(
    nodes=(
        NodeSpec(("h1", "h2", "h3"), gpus=(("h200", 8),)),
        NodeSpec(("m1",), gpus=(("h200", 2), ("a100", 2))),
        NodeSpec(("c1",)),
    ),
    partitions=(
        "gpu Nodes=h[1-3] Default=YES DefMemPerCPU=100 PriorityTier=1",
        "mixed Nodes=m1,h3 DefMemPerCPU=100 PriorityTier=1",
        "urgent Nodes=h[1-3] DefMemPerCPU=100 PriorityTier=10 PreemptMode=off",
        "graceful Nodes=h[1-3] DefMemPerCPU=100 PriorityTier=1 GraceTime=300",
        "cpu Nodes=c1 DefMemPerCPU=100 PriorityTier=1",
    ),
)


@pytest.fixture(scope="package")
def keeper() -> Iterator[Keeper]:
    """Whatever it starts is gone after the last test here, however that ends."""
    if why := missing():
        pytest.skip(why)
    with Keeper() as keeper:
        yield keeper


@pytest.fixture(scope="package")
def munge(keeper: Keeper) -> Munge:
    """One munge for every cluster."""
    return Munge(keeper, keeper.make_directory("slurm-munge-"))


@pytest.fixture(scope="package")
def accounting(keeper: Keeper, munge: Munge) -> Accounting:
    """slurmdbd on MariaDB."""
    return Accounting(keeper, keeper.make_directory("slurm-accounting-"), munge)


@pytest.fixture(scope="package")
def lab(keeper: Keeper, munge: Munge, accounting: Accounting) -> SlurmCluster:
    """Five real nodes, four of them with GPUs of two types, and accounting."""
    cluster = SlurmCluster(keeper, keeper.make_directory("slurm-lab-"), LAB, munge, accounting)
    cluster.start()
    return cluster


@pytest.fixture(scope="package")
def bare(keeper: Keeper, munge: Munge) -> SlurmCluster:
    """Two nodes without accounting, and so without GPUs among the TRES."""
    spec = ClusterSpec(
        nodes=(NodeSpec(("b1",), gpus=(("h200", 4),)), NodeSpec(("b2",), gpus=(("a100", 4),))),
        partitions=("all Nodes=b[1-2] Default=YES DefMemPerCPU=100",),
        name="bare",
    )
    cluster = SlurmCluster(keeper, keeper.make_directory("slurm-bare-"), spec, munge)
    cluster.start()
    return cluster


@pytest.fixture
def slurm(lab: SlurmCluster) -> SlurmCluster:
    """The lab, idle and empty."""
    lab.empty()
    return lab
