"""Events as counters: how jobs end, requeues, and nodes that leave service.

It counts every reading of the queue, the nodes and accounting, whichever collector asked for it.  A
slow slurmdbd delays nothing: accounting is read in the background.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import product
from typing import TypeVar

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.exposition import Samples, counter, gauge, histogram
from stagewatch.slurm.cluster import Cluster, Reading, Source, records_of
from stagewatch.slurm.model import Job
from stagewatch.slurm.notation import ENDED_STATES, REASON_CLASSES

T = TypeVar("T")

ENDED = counter(
    "slurm_jobs_ended_total",
    "Runs of jobs that ended, by final state; a requeued job has several.  UNKNOWN: gone from the "
    "queue without a record.  A job that never started counts in its first partition.",
    ("partition", "state"),
)
REQUEUES = counter(
    "slurm_job_requeues_total",
    "Requeues of jobs.",
    ("partition",),
)
RESTARTS = gauge(
    "slurm_job_restarts",
    "Restarts of jobs in the queue; only of the jobs with the most restarts.",
    ("job_id", "partition", "user"),
)
REQUEUED_AT = gauge(
    "slurm_job_requeue_timestamp_seconds",
    "When a job in slurm_job_restarts was last requeued, as Unix time: its previous run ended "
    "then.",
    ("job_id", "partition", "user"),
)
UNACCOUNTED = gauge(
    "slurm_jobs_unaccounted",
    "Jobs that left the queue without a final state and have no accounting record yet: how they "
    "ended is unknown.",
)
FROM_ACCOUNTING = gauge(
    "slurm_events_from_accounting",
    "1 if the counts of ended jobs include accounting; 0 if there is no accounting, and they come "
    "from the queue alone.",
)
WAIT = histogram(
    "slurm_job_wait_seconds",
    "Time from eligible to start, of runs that have ended.",
    ("partition",),
)
RUN = histogram(
    "slurm_job_run_seconds",
    "Time from start to end, of runs that have ended.",
    ("partition",),
)
NODE_FAILURES = counter(
    "slurm_node_failures_total",
    "How often a node left service, by kind (drain, down, fail) and class of the reason.",
    ("kind", "reason_class"),
)

LAST_FAILURE = gauge(
    "slurm_node_last_failure_timestamp_seconds",
    "When a node last left service, as Unix time; of the 200 most recent nodes.",
    ("node", "kind", "reason_class"),
)
KEPT = gauge(
    "slurm_events_kept",
    "1 if the counters are saved for the next start of the agent, 0 if that fails.",
)
FIRST_STATES = (
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
)
"""Shown from 0 for each partition, so that the first one is an increase."""
_TOP_RESTARTS = 50


class EventsCollector(Collector):
    """Passes new readings to the ledgers, and exports their counters."""

    def __init__(self, cluster: Cluster, *, wall: Callable[[], float] = time.time) -> None:
        self._cluster = cluster
        self._wall = wall
        self._applied: dict[str, int] = {}

    def collect(self) -> Samples:
        """Count new readings without waiting for one, and save the counters every half minute."""
        cluster, events = self._cluster, self._cluster.events
        if queue := self._new(cluster.jobs):
            events.jobs.observe_queue(queue.data.items, queue.asked)
        if ended := self._new(cluster.ended_jobs):
            complete = self._nothing_under_way()
            events.jobs.observe_accounting(ended.data.items, asked=ended.asked, complete=complete)
        elif cluster.ended_jobs.nothing:
            events.jobs.no_accounting(self._wall())
        if nodes := self._new(cluster.nodes):
            events.nodes.observe_nodes(nodes.data.items, nodes.asked)
        if periods := self._new(cluster.node_events):
            events.nodes.observe_events(periods.data.items, periods.asked)
        events.save()
        return self._measure()

    def _new(self, source: Source[T]) -> Reading[T] | None:
        """The source's last reading, if it has not been counted yet."""
        reading = source.keep_fresh()
        if reading is None or self._applied.get(source.name) == reading.sequence:
            return None
        self._applied[source.name] = reading.sequence
        return reading

    def _nothing_under_way(self) -> bool:
        """Whether the controller has sent everything to slurmdbd, by its last diagnostics."""
        reading = self._cluster.diagnostics.reading
        return reading is None or not reading.data.values.get("dbd_agent_queue_size")

    def _measure(self) -> Samples:
        out = Samples()
        events = self._cluster.events
        jobs, nodes = events.jobs, events.nodes
        for partition in self._partitions():
            out.add(REQUEUES, 0, partition)
            for state in FIRST_STATES:
                out.add(ENDED, 0, partition, state)
        out.add_all(ENDED, jobs.ended)
        out.add_all(REQUEUES, jobs.requeues)
        for metric, histograms in ((WAIT, jobs.wait), (RUN, jobs.run)):
            for partition, times in histograms.items():
                out.add_histogram(metric, times.exposed(), partition)
        out.add(UNACCOUNTED, jobs.unaccounted)
        for metric, truth in ((FROM_ACCOUNTING, jobs.accounting), (KEPT, events.kept)):
            out.add(metric, None if truth is None else int(truth))
        for why in product(("drain", "down", "fail"), REASON_CLASSES):
            out.add(NODE_FAILURES, 0, *why)  # so that the first one is an increase
        out.add_all(NODE_FAILURES, nodes.failures)

        for node, failure in nodes.recent.items():
            out.add(LAST_FAILURE, failure.when, node, failure.kind, failure.reason_class)
        restarted(out, records_of(self._cluster.jobs.reading))
        return out

    def _partitions(self) -> Iterable[str]:
        nodes = records_of(self._cluster.nodes.reading)
        return sorted({partition for node in nodes for partition in node.partitions})


def restarted(out: Samples, jobs: Iterable[Job]) -> None:
    """Add the jobs in the queue with the most restarts."""
    busiest = [job for job in jobs if job.restarts and job.state not in ENDED_STATES]
    busiest.sort(key=lambda job: (-job.restarts, job.job_id))
    for job in busiest[:_TOP_RESTARTS]:
        out.add(RESTARTS, job.restarts, job.job_id, job.partition, job.user)
        out.add(REQUEUED_AT, job.submit, job.job_id, job.partition, job.user)


SPEC = Declaration(
    name="slurm_events",
    help="ends of jobs, requeues and failures of nodes as counters that outlive the agent",
    interval=5,
    options=NoOptions,
)
