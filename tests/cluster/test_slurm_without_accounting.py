"""A cluster without slurmdbd: GPUs and events are seen all the same, and it is said where from."""

from __future__ import annotations

import pytest

from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples
from stagewatch.slurm.collectors import events as slurm_events
from stagewatch.slurm.collectors import nodes as slurm_nodes
from stagewatch.slurm.collectors import queue as slurm_queue
from stagewatch.slurm.collectors.events import EventsCollector
from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.cluster.observing import cli, observed


def test_gpus_are_counted_though_slurm_does_not_track_them(bare: SlurmCluster) -> None:
    """Without gres/gpu in AccountingStorageTRES the job's own request says how many."""
    bare.empty()
    typed = bare.submit("--gres=gpu:h200:3")
    anything = bare.submit("--gpus-per-node=4", "-w", "b2")
    waiting = bare.submit("--gpus=a100:2", "--begin=now+1hour")
    for job in (typed, anything):
        bare.wait_job(job, "RUNNING")
    bare.wait_job(waiting, "PENDING")
    assert "gres/gpu" not in bare.run("scontrol", "show", "job", typed).partition("TresPer")[0]
    queue = slurm_queue.measure(cli(bare).jobs(30).items, now=0, top=5)
    assert queue.value(slurm_queue.QUEUE_GPUS, "all", "RUNNING", "h200") == 3
    assert queue.value(slurm_queue.QUEUE_GPUS, "all", "RUNNING", "unknown") == 4
    assert queue.value(slurm_queue.QUEUE_GPUS, "all", "PENDING", "a100") == 2
    cluster = observed(bare)
    cluster.nodes.refresh()
    queue = slurm_queue.QueueCollector(cluster.jobs, cluster.nodes).collect()
    assert queue.value(slurm_queue.QUEUE_GPUS, "all", "RUNNING", "a100") == 4
    nodes = slurm_nodes.measure(cli(bare).nodes(30).items)
    assert nodes.value(slurm_nodes.GPUS, "all", "h200", "allocated") == 3
    assert nodes.value(slurm_nodes.GPUS, "all", "a100", "allocated") == 4
    assert nodes.value(slurm_nodes.GPUS, "all", "h200", "free") == 1


def test_events_are_counted_from_what_the_queue_shows(bare: SlurmCluster) -> None:
    """Final states while the controller remembers them; a requeued run is known as that."""
    bare.empty()
    cluster = observed(bare)
    events = EventsCollector(cluster)

    def look() -> Samples:
        cluster.jobs.refresh()
        cluster.nodes.refresh()
        return events.collect()

    look()
    with pytest.raises(NoData):
        cluster.ended_jobs.refresh()
    with pytest.raises(NoData):
        cluster.node_events.refresh()
    failing = bare.submit(script="exit 3")
    requeued = bare.submit()
    bare.wait_job(failing, "FAILED")
    bare.wait_job(requeued, "RUNNING")
    assert look().value(slurm_events.FROM_ACCOUNTING) == 0
    bare.run("scontrol", "requeue", requeued)
    bare.wait_job(requeued, "PENDING", "RUNNING")
    found = look()
    assert found.value(slurm_events.ENDED, "all", "FAILED") == 1
    assert found.value(slurm_events.ENDED, "all", "REQUEUED") == 1
    assert found.value(slurm_events.REQUEUES, "all") == 1
    assert found.value(slurm_events.RESTARTS, requeued, "all", "root") == 1
    assert found.value(slurm_events.UNACCOUNTED) == 0
    bare.empty()
