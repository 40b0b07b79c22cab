"""Events of a real Slurm, counted once each, with and without accounting."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.exposition import Samples
from stagewatch.demo.waiting import TookTooLong
from stagewatch.slurm.cluster import Cluster
from stagewatch.slurm.collectors import events as slurm_events
from stagewatch.slurm.collectors.events import EventsCollector
from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.cluster import independent
from tests.cluster.independent import Numbers
from tests.cluster.observing import numbers, observed, settled


class Watch:
    """An events collector that is driven by hand."""

    def __init__(self, slurm: SlurmCluster, state_file: Path | None = None) -> None:
        self.slurm = slurm
        self.since = int(time.time())
        self.cluster: Cluster = observed(slurm, state_file)
        self.events = EventsCollector(self.cluster)

    def look(self, *, accounting: bool = False) -> Samples:
        """One round of every source, or of all but accounting."""
        self.cluster.jobs.refresh()
        self.cluster.nodes.refresh()
        if accounting:
            self.cluster.ended_jobs.refresh()
            self.cluster.node_events.refresh()
        return self.events.collect()

    def ended(self, state: str, *, accounting: bool = False) -> float:
        """Runs that ended in a state, in all partitions."""
        found = numbers(self.look(accounting=accounting))
        return sum(v for k, v in found.items() if k[0] == slurm_events.ENDED.name and k[2] == state)


@pytest.fixture
def watch(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Watch]:
    """A watch over the empty lab, which has had its first look."""
    # Jobs that ended in the second before would count or not, depending on the clock.
    time.sleep(1.1)
    watch = Watch(slurm, tmp_path / "state" / "slurm.json")
    watch.look(accounting=True)
    yield watch
    watch.cluster.close()


def same_as_sacct(watch: Watch) -> None:
    """Every count equals what sacct lists since the watch began."""

    def equal() -> bool:
        ours = {
            key: value
            for key, value in numbers(watch.look(accounting=True)).items()
            if key[0] == slurm_events.ENDED.name and value
        }
        theirs = independent.ended(watch.slurm, watch.since)
        watch.last = (ours, theirs)  # type: ignore[attr-defined]
        return ours == theirs and bool(ours)

    try:
        watch.slurm.wait(equal, "counters to equal sacct", limit=40)
    except TookTooLong:
        ours, theirs = watch.last  # type: ignore[attr-defined]
        assert ours == theirs
        raise


def requeues(watch: Watch) -> Numbers:
    """Requeues by partition, those that there were."""
    found = numbers(watch.look()).items()
    return {key: value for key, value in found if key[0] == slurm_events.REQUEUES.name and value}


def test_every_kind_of_end_is_counted_once(watch: Watch) -> None:
    """Failures, cancels, arrays, requeues, preemption and dead nodes, as in sacct."""
    slurm = watch.slurm
    before = independent.restarts(slurm)  # the controller remembers other tests' jobs too
    slurm.submit("--array=0-9%4", script="true")
    slurm.submit(script="exit 7")
    slurm.submit(script="exit 1")
    slurm.submit(script="kill -SEGV $$")
    held = slurm.submit("--hold", "--array=0-4")
    cancelled = slurm.submit()
    requeued = slurm.submit("-w", "h2")
    dying = slurm.submit("-w", "h1", "--gres=gpu:h200:8", "--requeue")
    lost = slurm.submit("-w", "m1", "-p", "mixed", "--no-requeue")
    preempted = slurm.submit("-w", "h3", "--gres=gpu:h200:8")
    for job in (cancelled, requeued, dying, lost, preempted):
        slurm.wait_job(job, "RUNNING")
    watch.look()
    slurm.run("scancel", cancelled, held)
    slurm.run("scontrol", "requeue", requeued)
    urgent = slurm.submit("-p", "urgent", "-w", "h3", "--gres=gpu:h200:8")
    slurm.daemons.stop("slurmd-h1", signal.SIGKILL)
    slurm.daemons.stop("slurmd-m1", signal.SIGKILL)
    slurm.wait_job(urgent, "RUNNING")
    slurm.wait_job(lost, "NODE_FAIL")
    watch.look()
    same_as_sacct(watch)
    found = watch.look()
    # Requeued jobs may be preempted again at any time: both must be of the same moment.
    counted, remembered = settled(lambda: requeues(watch), lambda: independent.restarts(slurm))
    assert sum(counted.values()) == sum(remembered.values()) - sum(before.values()) >= 3
    assert found.value(slurm_events.UNACCOUNTED) == 0
    assert found.value(slurm_events.FROM_ACCOUNTING) == 1
    down = [v for k, v in numbers(found).items() if k[:2] == ("slurm_node_failures_total", "down")]
    assert sum(down) == 2


def test_counters_go_on_where_they_were_after_a_restart_of_the_agent(
    watch: Watch, tmp_path: Path
) -> None:
    """What ended while the agent was away is counted when it is back, and nothing twice."""
    slurm = watch.slurm
    first = slurm.submit(script="exit 1")
    slurm.wait_job(first, "FAILED")
    assert watch.ended("FAILED", accounting=True) == 1
    watch.cluster.close()
    second = slurm.submit(script="exit 1")
    slurm.wait_job(second, "FAILED")
    successor = Watch(slurm, tmp_path / "state" / "slurm.json")
    slurm.wait(lambda: successor.ended("FAILED", accounting=True) == 2, "both failures")
    assert successor.ended("FAILED", accounting=True) == 2
