"""A cluster with a backup controller: each is told by its role."""

from __future__ import annotations

from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import Munge
from tests.cluster.observing import cli


def test_backup_that_does_not_answer_is_told_from_the_primary_that_does(
    keeper: Keeper, munge: Munge
) -> None:
    """`scontrol ping` answers, and fails, where one of the two is down."""
    spec = ClusterSpec(
        nodes=(NodeSpec(("b1",), real=False),), partitions=("all Nodes=b1",), name="pair"
    )
    slurm = SlurmCluster(keeper, keeper.make_directory("slurm-pair-"), spec, munge)
    config = slurm.config.read_text()
    slurm.config.write_text(
        config.replace("\nSlurmctldPort", "\nSlurmctldHost=spare(255.255.255.255)\nSlurmctldPort")
    )
    slurm.start()
    found = {each.role: each for each in cli(slurm).ping(30)}
    assert found["primary"].up
    assert not found["backup"].up
    assert found["backup"].host == "spare"
