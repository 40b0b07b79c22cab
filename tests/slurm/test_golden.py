"""Slurm's collectors over one small cluster, against golden expositions."""

from __future__ import annotations

from stagewatch.slurm.cluster import Cluster, Timing
from stagewatch.slurm.collectors import controller as slurm_controller
from stagewatch.slurm.collectors import jobs as slurm_jobs
from stagewatch.slurm.collectors import nodes as slurm_nodes
from stagewatch.slurm.collectors import queue as slurm_queue
from stagewatch.slurm.collectors.events import EventsCollector
from tests.fake_clock import Clock
from tests.golden import assert_golden
from tests.slurm.scene import JOBS, NODES, Canned, known

T = 1750000000


def test_queue_golden() -> None:
    """Array tasks one by one, jobs in several partitions, an unknown state, no ended jobs."""
    jobs = JOBS.items
    assert_golden(slurm_queue.measure(jobs, now=T + 3600, top=50), "slurm/queue.prom")


def test_nodes_golden() -> None:
    """The truth table, flags, and why nodes are out."""
    nodes = NODES.items
    assert_golden(slurm_nodes.measure(nodes), "slurm/nodes.prom")


def test_controller_golden() -> None:
    """Scheduler, requests and pings."""
    cluster = Cluster(Canned(), Timing())
    for source in (cluster.diagnostics, cluster.ping):
        known(source)
    collector = slurm_controller.ControllerCollector(cluster.diagnostics, cluster.ping)
    assert_golden(collector.collect(), "slurm/controller.prom")


def test_jobs_golden() -> None:
    """Nodes and GPU indices of running jobs."""
    jobs, nodes = JOBS.items, NODES.items
    assert_golden(slurm_jobs.measure(jobs, nodes), "slurm/jobs.prom")


def test_events_golden() -> None:
    """Counters from accounting, each partition from 0."""
    clock = Clock(0.0)
    clock.now = T - 1000.0
    cluster = Cluster(Canned(), Timing(), wall=clock)
    clock.now = float(T)
    for source in (cluster.jobs, cluster.nodes, cluster.ended_jobs, cluster.node_events):
        known(source)
    assert_golden(EventsCollector(cluster, wall=clock).collect(), "slurm/events.prom")
