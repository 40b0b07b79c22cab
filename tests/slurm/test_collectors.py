"""What Slurm's collectors make of failures, claims, many users, and a large cluster."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.exposition import Samples
from stagewatch.slurm.agent import collector_specs
from stagewatch.slurm.cluster import Cluster, Source, Timing
from stagewatch.slurm.collectors import controller as slurm_controller
from stagewatch.slurm.collectors import jobs as slurm_jobs
from stagewatch.slurm.collectors import nodes as slurm_nodes
from stagewatch.slurm.collectors import queue as slurm_queue
from stagewatch.slurm.collectors import steps as slurm_steps
from stagewatch.slurm.collectors.discovery import DiscoveryCollector
from stagewatch.slurm.collectors.events import EventsCollector
from stagewatch.slurm.collectors.jobs import JobsCollector
from stagewatch.slurm.context import SlurmOptions, slurm_context
from stagewatch.slurm.model import Job, Node, Records
from stagewatch.slurm.notation import NodeGpus
from tests.fake_clock import Clock
from tests.slurm.ledger_scene import job as base_job
from tests.slurm.scene import NODES, Canned, big_cluster, series

T = 1750000000


def test_all_collectors_together_ask_no_more_than_one_reader_of_each_source(tmp_path: Path) -> None:
    """Whoever comes first asks, and the others share the answer."""
    clock, client = Clock(0.0), Canned()
    cluster = Cluster(client, Timing(), clock=clock)
    context = replace(slurm_context(SlurmOptions(state_dir=tmp_path)), cluster=cluster)
    values = {s.key: s.default for spec in collector_specs() for s in spec.settings()}
    collectors = [spec.make(values, context) for spec in collector_specs() if spec.default]
    of_cycles = []
    for cycle in range(40):
        client.requests = 0
        for second in (0, 5, 10):  # the most frequent collectors run every 5 s
            clock.now = cycle * 15 + second + 0.003
            for collector in collectors:
                with suppress(NoData):
                    collector.collect()
        of_cycles.append(client.requests)
    assert max(of_cycles) == 4
    assert sum(of_cycles[20:]) == 75  # 3.75 a cycle


def test_what_a_failed_source_feeds_fails_with_its_reason(tmp_path: Path) -> None:
    """Having nothing is for what the cluster does not have."""
    context = slurm_context(SlurmOptions(state_dir=tmp_path))
    client = Canned()
    client.down = True
    cluster = Cluster(client, Timing())
    context = replace(context, cluster=cluster)
    with pytest.raises(SourceError):
        cluster.nodes.refresh()
    for collector in (
        JobsCollector(cluster),
        DiscoveryCollector(context.cluster.nodes, context.discovery),
    ):
        with pytest.raises(SourceError, match="no controller"):
            collector.collect()


def test_controller_that_does_not_answer_pings_is_down() -> None:
    """The hosts are known from before."""
    clock, client = Clock(0.0), Canned()
    cluster = Cluster(client, Timing(), clock=clock)
    collector = slurm_controller.ControllerCollector(cluster.diagnostics, cluster.ping)
    with pytest.raises(NoData):
        collector.collect()
    clock.now = 20
    assert collector.collect().value(slurm_controller.UP, "ctl1", "primary") == 1
    client.down = True
    clock.now = 90
    found = collector.collect()
    assert found.value(slurm_controller.UP, "ctl1", "primary") == 0
    assert slurm_controller.RPCS not in found.families


def test_node_is_not_out_of_service_because_the_controller_has_just_started() -> None:
    """Nodes are UNKNOWN until they have answered it; those that were out before still are."""
    nodes = NODES.items
    at_first = [n if n.state == "DOWN" else replace(n, state="UNKNOWN") for n in nodes]
    before, after = slurm_nodes.measure(nodes), slurm_nodes.measure(at_first)
    for metric in (slurm_nodes.UNAVAILABLE, slurm_nodes.NODES, slurm_nodes.GPUS):
        assert after.families[metric] == before.families[metric]
    assert after.value(slurm_nodes.CLUSTER_NODES, "UNKNOWN") == len(nodes) - 1


def test_largest_cluster_stays_below_thirty_thousand_series() -> None:
    """In the default configuration; what is left out is counted."""
    jobs, nodes = big_cluster()
    cluster = Cluster(Canned(), Timing())
    events = EventsCollector(cluster)
    now = int(cluster.events.jobs._kept.last_poll)
    ended = [replace(job, job_id=-i, state="FAILED", end=now + 5) for i, job in enumerate(jobs)]
    cluster.events.jobs.observe_queue([*jobs, *ended], now + 10.0)
    samples = [
        slurm_queue.measure(jobs, now=T),
        slurm_nodes.measure(nodes),
        slurm_jobs.measure(jobs, nodes),
        events.collect(),
    ]
    assert series(samples) < 30_000
    queue, _, running, _ = samples
    users = {labels[0] for labels in queue.families[slurm_queue.USER_JOBS]}
    assert len(users) == 51
    assert "other" in users
    total = sum(value for value in queue.families[slurm_queue.USER_JOBS].values())  # type: ignore[misc]
    assert total == 100_000
    reasons = {labels[2] for labels in queue.families[slurm_queue.QUEUE_JOBS]}
    assert len(reasons) <= 66
    assert running.value(slurm_jobs.HIDDEN) == 19_000


def gpu_node(name: str, kind: str, held: tuple[int, ...]) -> Node:
    """A node of 8 GPUs of one type."""
    base = NODES.items[0]
    return replace(base, name=name, gpus=(NodeGpus(kind, 8, len(held), held),))


def gpu_job(nodes: str, gpus: int) -> Job:
    """A running job with GPUs of no named type."""
    return base_job(node_list=nodes, gpus=(("", gpus),), end=None)


def test_completing_jobs_are_shown_longest_first_and_short_ones_without_gpus_are_not() -> None:
    """squeue shows as EndTime when they ended, also while their processes are being killed."""
    gpus = (("h200", 4),)
    jobs = [
        base_job(1, "COMPLETING", end=T - 5, gpus=gpus),
        base_job(2, "RUNNING", end=T - 900, gpus=gpus),
        base_job(3, "COMPLETING", end=None, gpus=gpus),
        base_job(4, "COMPLETING", end=T - 59),
        base_job(5, "COMPLETING", end=T - 61),
    ]
    for most, told in ((2, {"1": T - 5, "5": T - 61}), (1, {"5": T - 61})):
        found = Samples()
        slurm_jobs.measure_completing(found, jobs, now=T, most=most)
        assert found.families[slurm_jobs.COMPLETING] == {
            (job, "ada", "physics", "gpu"): end for job, end in told.items()
        }


def test_job_beside_one_that_we_know_no_gpus_of_is_not_given_the_whole_node() -> None:
    """The node has 4 GPUs in use; the one job that is known to have any has 2 of them."""
    node = gpu_node("n1", "h200", (0, 1, 4, 5))
    for gpus, shown in ((4, "0-1,4-5"), (2, "")):
        found = slurm_jobs.measure([gpu_job("n1", gpus)], [node])
        assert found.value(slurm_jobs.NODE, "1", "n1", shown) == 1
    pair = [node, gpu_node("n2", "h200", (0, 1))]
    found = slurm_jobs.measure([gpu_job("n[1-2]", 4)], pair)
    assert found.value(slurm_jobs.NODE, "1", "n2", "") == 1


def test_no_step_is_blamed_while_the_controller_gives_no_answer() -> None:
    """A step that could not be asked is not one that did not answer, nor is it one afterwards."""
    answers: list[object] = [Records(tuple(big_cluster()[0][:1])), SourceError("no controller")]

    def jobs(timeout: float) -> Records[Job]:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Records)
        return found

    source = Source("jobs", jobs, timeout=1)
    source.refresh()
    asked: list[int] = []

    def answer(job_id: int, timeout: float) -> bool:
        asked.append(job_id)
        return False

    collector = slurm_steps.StepsCollector(source, answer, most=1)
    assert collector.collect().value(slurm_steps.RESPONSIVE, 0) == 0
    with pytest.raises(SourceError):
        source.refresh()
    for _ in range(2):
        with pytest.raises(NoData):
            collector.collect()
    assert asked == [0]
