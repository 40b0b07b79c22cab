"""The controller or slurmdbd hangs, dies and returns; the agent says so and keeps what it knows."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.keeping import Keeper
from tests.cluster.agent_process import AgentProcess
from tests.cluster.independent import Numbers

READ = ("jobs", "nodes", "diagnostics")
CONTROLLER = (*READ, "ping")
ACCOUNTING = ("accounting_jobs", "accounting_nodes")


@pytest.fixture
def agent(keeper: Keeper, slurm: SlurmCluster, tmp_path: Path) -> Iterator[AgentProcess]:
    """An agent whose sources all work."""
    agent = AgentProcess(keeper, slurm, tmp_path, "--sd-exporters=stagewatch:9947,dcgm:9400")
    agent.wait(lambda found: succeed(found, *CONTROLLER, *ACCOUNTING), "every source to work")
    yield agent
    agent.stop(signal.SIGKILL)


def succeed(found: Numbers, *sources: str) -> bool:
    """Whether all of these sources work."""
    return all(found.get(("slurm_source_success", source)) == 1 for source in sources)


def fail(found: Numbers, *sources: str) -> bool:
    """Whether all of these sources fail."""
    return all(found.get(("slurm_source_success", source)) == 0 for source in sources)


def up(found: Numbers) -> float | None:
    """Whether the controller is said to be up."""
    return next((value for key, value in found.items() if key[0] == "slurm_controller_up"), None)


def counters(found: Numbers) -> Numbers:
    """The event counters, which must never go back."""
    prefixes = ("slurm_jobs_ended", "slurm_job_requeues", "slurm_node_fail")
    return {key: value for key, value in found.items() if key[0].startswith(prefixes)}


def test_hung_controller_fails_its_sources_and_no_other(
    agent: AgentProcess, slurm: SlurmCluster
) -> None:
    """SIGSTOP: commands that hang are killed; accounting, scrapes and discovery go on."""
    failed = ("slurm_jobs_ended_total", "gpu", "FAILED")
    earlier = agent.wait(lambda found: failed in found, "the partitions to be seen")[failed]
    job = slurm.submit(script="exit 1")
    slurm.wait_job(job, "FAILED")
    before = agent.wait(lambda found: found[failed] == earlier + 1, "the failure to be counted")
    targets = agent.discovered()
    slurm.daemons.send("slurmctld", signal.SIGSTOP)
    try:
        found = agent.wait(lambda found: fail(found, *CONTROLLER), "the controller's sources")
        assert succeed(found, *ACCOUNTING)
        agent.wait(lambda found: up(found) == 0, "the controller to be told down")
        agent.wait(
            lambda found: ("slurm_jobs", "PENDING") not in found, "old numbers to be dropped"
        )
        assert agent.discovered() == targets
        assert counters(agent.scrape()) == counters(before)
        for source in ("jobs", "nodes"):
            assert agent.value("slurm_source_age_seconds", source) is not None
    finally:
        slurm.daemons.send("slurmctld", signal.SIGCONT)
    found = agent.wait(lambda found: succeed(found, *CONTROLLER), "the sources to work again")
    after = agent.wait(lambda found: ("slurm_jobs", "PENDING") in found, "the queue to be back")
    assert counters(after) == counters(before)
    said = re.findall("WARNING (collector slurm_queue failed.*)", agent.text_of_log())
    assert said and len(said) == len(set(said)), said


def test_dead_slurmdbd_delays_what_only_it_knows(agent: AgentProcess, slurm: SlurmCluster) -> None:
    """The queue's own final states count at once; a requeued run waits for its record."""
    assert slurm.accounting is not None
    accounting = slurm.accounting
    running = slurm.submit()
    slurm.wait_job(running, "RUNNING")
    before = agent.wait(
        lambda found: found.get(("slurm_jobs", "RUNNING")) == 1, "the job to be seen"
    )
    accounting.daemons.stop("slurmdbd", signal.SIGKILL)
    try:
        agent.wait(lambda found: fail(found, *ACCOUNTING), "accounting to fail")
        failing = slurm.submit(script="exit 1")
        slurm.run("scontrol", "requeue", running)
        slurm.wait_job(failing, "FAILED")
        found = agent.wait(
            lambda found: (
                found.get(("slurm_jobs_ended_total", "gpu", "FAILED")) == 1
                and found.get(("slurm_jobs_unaccounted",)) == 1
            ),
            "the failure to be counted and the requeued run to be awaited",
        )
        assert succeed(found, *CONTROLLER)
        cancelled = ("slurm_jobs_ended_total", "gpu", "CANCELLED")
        assert found[cancelled] == before[cancelled]
        assert ("slurm_jobs_ended_total", "gpu", "REQUEUED") not in found
    finally:
        accounting.start()
    found = agent.wait(
        lambda found: found.get(("slurm_jobs_ended_total", "gpu", "REQUEUED")) == 1,
        "the record of the requeued run",
        limit=180,
    )
    assert found["slurm_jobs_ended_total", "gpu", "FAILED"] == 1
    assert found["slurm_jobs_unaccounted",] == 0
