"""A hung step is seen, and the others answer meanwhile."""

from __future__ import annotations

import os
import signal

from stagewatch.core.exposition import Samples
from stagewatch.slurm.collectors import steps as slurm_steps
from stagewatch.slurm.collectors.steps import StepsCollector
from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.cluster.observing import observed, step_daemon


def steps(slurm: SlurmCluster) -> StepsCollector:
    """A collector over the jobs that run now."""
    cluster = observed(slurm)
    cluster.jobs.refresh()
    return StepsCollector(cluster.jobs, cluster.client.steps_answer, timeout=5)


def test_step_that_hangs_does_not_answer_and_its_neighbour_does(slurm: SlurmCluster) -> None:
    """The step daemon is stopped: `sstat` hangs, though the node and its slurmd are well."""
    hung = slurm.submit("-w", "h1", "--gres=gpu:h200:8")
    well = slurm.submit("-w", "h2", "--gres=gpu:h200:4")
    for job in (hung, well):
        slurm.wait_job(job, "RUNNING")
    daemon = step_daemon(slurm, hung)
    step_daemon(slurm, well)
    collector = steps(slurm)

    def both() -> Samples | None:
        found = collector.collect()
        return found if len(found.families.get(slurm_steps.RESPONSIVE, {})) == 2 else None

    os.kill(daemon, signal.SIGSTOP)
    try:
        found = slurm.wait(both, "both jobs to be asked")
        assert found.value(slurm_steps.RESPONSIVE, hung) == 0
        assert found.value(slurm_steps.RESPONSIVE, well) == 1
    finally:
        os.kill(daemon, signal.SIGCONT)
    slurm.wait(
        lambda: collector.collect().value(slurm_steps.RESPONSIVE, hung) == 1, "it to answer again"
    )
