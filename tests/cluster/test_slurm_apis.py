"""Text and slurmrestd say the same about one real cluster."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData, SourceError
from stagewatch.slurm.collectors import controller as slurm_controller
from stagewatch.slurm.collectors import jobs as slurm_jobs
from stagewatch.slurm.collectors import nodes as slurm_nodes
from stagewatch.slurm.collectors import queue as slurm_queue
from stagewatch.slurm.transport.rest import HttpReader, SlurmRest
from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import Rest
from tests.cluster import independent
from tests.cluster.agent_process import AgentProcess
from tests.cluster.independent import Numbers
from tests.cluster.observing import cli, numbers, settled

AGES = ("slurm_pending_age_seconds",)


@pytest.fixture(scope="module")
def rest(lab: SlurmCluster, keeper: Keeper) -> Rest:
    """slurmrestd over the lab."""
    if shutil.which("slurmrestd") is None:
        pytest.skip("slurmrestd is not installed")
    return Rest(lab.daemons, lab.env, keeper.make_directory("slurm-rest-"))


def rest_client(rest: Rest) -> SlurmRest:
    """slurmrestd through its socket."""
    return SlurmRest(lambda: HttpReader(f"unix:{rest.socket}"))


@pytest.fixture
def busy(slurm: SlurmCluster) -> SlurmCluster:
    """The lab with a bit of everything."""
    running = [
        slurm.submit("-w", "h3", "--gres=gpu:h200:2", user="games"),
        slurm.submit("-w", "h3", "--gres=gpu:h200:3"),
        slurm.submit("-N2", "-w", "h1,h2", "--gres=gpu:h200:8", user="daemon"),
    ]
    for job in running:
        slurm.wait_job(job, "RUNNING")
    slurm.submit("--array=0-20:2,31%2", "--gpus=1", "-p", "mixed,gpu", "--hold")
    for name in ("a|b", "x\ny", 'q"\\', b"\xff\xfe".decode(errors="surrogateescape")):
        slurm.submit("--hold", f"--job-name={name}", f"--comment={name}")
    failing = slurm.submit("-p", "cpu", script="exit 7")
    slurm.wait_job(failing, "FAILED")
    slurm.run("scontrol", "update", "nodename=h2", "state=drain", "reason=bad | [x] link")
    slurm.run("scontrol", "update", "nodename=c1", "state=down", "reason=disk")
    return slurm


def same(slurm: SlurmCluster, ours: Callable[[], Numbers], theirs: Callable[[], Numbers]) -> None:
    """Both at rest, and equal."""
    found, expected = settled(ours, theirs)
    assert found == expected


def test_slurmrestd_tells_what_text_tells(busy: SlurmCluster, rest: Rest) -> None:
    """Queue, nodes, why they are out, and how jobs ended: number for number."""
    busy.submit("--gres=gpu:h200:1")
    text = cli(busy)
    other = rest_client(rest)
    same(
        busy,
        lambda: numbers(slurm_queue.measure(other.jobs(30).items, now=0, top=50), *AGES),
        lambda: independent.queue(busy),
    )
    same(
        busy,
        lambda: numbers(slurm_nodes.measure(other.nodes(30).items)),
        lambda: numbers(slurm_nodes.measure(text.nodes(30).items)),
    )
    theirs = {job.job_id: job for job in text.jobs(30).items if job.state == "FAILED"}
    ours = {job.job_id: job for job in other.jobs(30).items if job.state == "FAILED"}
    assert theirs
    for job_id, job in theirs.items():
        found = ours[job_id]
        assert (found.exit_code, found.signal) == (job.exit_code, job.signal) == (7, 0)
        assert (found.submit, found.start, found.end) == (job.submit, job.start, job.end)
    up = {(each.host, each.role): each.up for each in other.ping(30)}
    assert up == {(each.host, each.role): each.up for each in text.ping(30)}
    values = other.diagnostics(30).values
    assert values.keys() >= {"server_thread_count", "schedule_cycle_last", "dbd_agent_queue_size"}
    assert values["jobs_submitted"] == text.diagnostics(30).values["jobs_submitted"]


def test_slurmrestd_knows_the_gpus_of_jobs_that_share_a_node(
    busy: SlurmCluster, rest: Rest
) -> None:
    """Indices on shared nodes come with the queue, without a further request."""
    other = rest_client(rest)
    found = slurm_jobs.measure(other.jobs(30).items, other.nodes(30).items)
    on_h3 = {gpus for _, node, gpus in found.families[slurm_jobs.NODE] if node == "h3"}
    assert on_h3 == {"0-1", "2-4"}


def test_rest_of_this_version_has_no_complete_accounting(lab: SlurmCluster, rest: Rest) -> None:
    """It lists no runs of requeued jobs, so ends are taken from the queue; and no node events."""
    client = rest_client(rest)
    with pytest.raises(NoData, match="requeued"):
        client.ended_jobs(30, 600)
    with pytest.raises(NoData, match="events"):
        client.node_events(30, 600)


def test_rest_without_a_server_fails_with_a_clear_message(tmp_path: Path) -> None:
    """The address is named, and the message is the same each time."""
    client = SlurmRest(lambda: HttpReader(f"unix:{tmp_path}/none.socket"))
    said = set()
    for _ in range(2):
        with pytest.raises(SourceError) as caught:
            client.jobs(5)
        said.add(str(caught.value))
    assert said == {f"unix:{tmp_path}/none.socket cannot be asked: No such file or directory"}


def test_agent_runs_on_slurmrestd_alone(
    keeper: Keeper, slurm: SlurmCluster, rest: Rest, tmp_path: Path
) -> None:
    """--api rest: queue, nodes and controller; and it says where its events come from."""
    job = slurm.submit("--gres=gpu:h200:2")
    slurm.wait_job(job, "RUNNING")
    agent = AgentProcess(keeper, slurm, tmp_path, "--api=rest", f"--rest-url=unix:{rest.socket}")
    found = agent.wait(
        lambda found: (
            ("slurm_queue_gpus", "gpu", "RUNNING", "h200") in found
            and ("slurm_scheduler_cycle_last_seconds",) in found
            and found.get(("slurm_events_from_accounting",)) == 0
        ),
        "the agent to see the cluster",
    )
    assert found["slurm_queue_gpus", "gpu", "RUNNING", "h200"] == 2
    names = {metric.name for metric in slurm_controller.VALUES.values()}
    assert names & {key[0] for key in found}
    assert agent.stop() == 0
