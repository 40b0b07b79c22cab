"""Two clusters watched by one agent (`-M`), each under its own label."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.keeping import Keeper
from tests.cluster.agent_process import AgentProcess

pytestmark = pytest.mark.xdist_group("live")


def test_two_clusters_have_their_own_labels_and_outages(
    keeper: Keeper, slurm: SlurmCluster, annex: SlurmCluster, tmp_path: Path
) -> None:
    """A hung controller takes its own cluster's numbers away, and leaves the other's alone."""
    annex.empty()
    here = slurm.submit("--gres=gpu:h200:2")
    there = annex.submit("--gres=gpu:a100:4")
    slurm.wait_job(here, "RUNNING")
    annex.wait_job(there, "RUNNING")
    slurm.wait(
        lambda: "annex" in slurm.run("squeue", "-M", "annex", check=False), "slurmdbd to know annex"
    )
    agent = AgentProcess(keeper, slurm, tmp_path, "--clusters=lab,annex")
    found = agent.wait(
        lambda found: (
            ("slurm_queue_gpus", "lab", "gpu", "RUNNING", "h200") in found
            and ("slurm_queue_gpus", "annex", "all", "RUNNING", "a100") in found
            and ("slurm_job_node", "annex", there, "x1", "0-3") in found
            and ("slurm_events_from_accounting", "annex") in found
        ),
        "both clusters to be seen",
    )
    assert found["slurm_queue_gpus", "lab", "gpu", "RUNNING", "h200"] == 2
    assert found["slurm_queue_gpus", "annex", "all", "RUNNING", "a100"] == 4
    targets = agent.discovered()
    assert {group["labels"]["cluster"] for group in targets} == {"lab", "annex"}
    assert [g["labels"]["node"] for g in targets if g["labels"]["cluster"] == "annex"] == ["x1"]
    annex.daemons.send("slurmctld", signal.SIGSTOP)
    try:
        found = agent.wait(
            lambda found: (
                found.get(("slurm_source_success", "annex", "jobs")) == 0
                and ("slurm_jobs", "annex", "RUNNING") not in found
            ),
            "annex to be gone",
        )
        assert found["slurm_source_success", "lab", "jobs"] == 1
        assert found["slurm_jobs", "lab", "RUNNING"] == 1
        assert agent.discovered() == targets
    finally:
        annex.daemons.send("slurmctld", signal.SIGCONT)
    agent.wait(lambda found: ("slurm_jobs", "annex", "RUNNING") in found, "annex to be back")
    assert agent.stop() == 0
    annex.empty()
