"""Nodes of a real Slurm that are marked and drained for a verdict, within limits, and undone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stagewatch.act.slurm import SlurmSite
from stagewatch.core.errors import SourceError, StagewatchError
from stagewatch.core.processes import Children
from stagewatch.judgement.facts import Inside
from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.act.proposals import case_of, proposal
from tests.judgement.exported import export
from tests.judgement.jobs import LEFT, SPINNING, job
from tests.report.filled import Past, filled_prometheus

AS_GAMES = ("setpriv", "--reuid=games", "--clear-groups")
NODES = ("h1", "h2", "h3", "m1", "c1")


class Act:
    """`stagewatch act` on the cluster."""

    def __init__(self, slurm: SlurmCluster, directory: Path) -> None:
        self._slurm = slurm
        self._case = directory / "case.json"
        self.site = SlurmSite()
        self.as_games = False

    def case(self, *nodes: str, **changes: object) -> str:
        """A case that proposes these nodes."""
        made = [proposal(node, **changes) for node in nodes]
        return str(case_of(self._case, *made))

    def run(self, *argv: str, status: int | None = 0) -> str:
        """What a command said, with the case on its standard input."""
        command = [sys.executable, "-m", "stagewatch.cli", "act", *argv]
        if self.as_games:
            command = [*AS_GAMES, *command]
        done = subprocess.run(
            command,
            env=self._slurm.env,
            input=self._case.read_text() if self._case.exists() else "",
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert status in (None, done.returncode), done.stdout + done.stderr
        return done.stdout + done.stderr

    def shown(self, node: str) -> str:
        """What Slurm says of a node."""
        return self._slurm.run("scontrol", "show", "node", node)


@pytest.fixture
def act(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Act]:
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    yield Act(slurm, tmp_path)
    for node in NODES:
        slurm.run("scontrol", "update", f"nodename={node}", "comment=")
        if "DRAIN" in slurm.state(node):
            slurm.run("scontrol", "update", f"nodename={node}", "state=resume")


def test_a_node_is_drained_with_the_proof_and_resumed_by_one_command(
    act: Act, slurm: SlurmCluster
) -> None:
    job = slurm.submit("-w", "h1")
    slurm.wait_job(job, "RUNNING")
    said = act.run("drain", act.case("h1"))
    assert "to take it back: stagewatch act undo h1" in said
    assert slurm.state("h1").endswith("+DRAIN")
    assert slurm.job_state(job) == "RUNNING", "what runs there goes on"
    shown = act.shown("h1")
    assert "Reason=stagewatch: XID 79; rank 5 of job 540 has not entered" in shown
    assert "(GPU GPU-5); sure, until 2" in shown
    assert "case case.json" in shown
    assert "it is out already" in act.run("drain", act.case("h1"), status=1)
    assert "h1 is resumed" in act.run("undo", "h1")
    slurm.wait(lambda: "DRAIN" not in slurm.state("h1"), "h1 to be resumed")
    assert "nothing of ours" in act.run("undo", "h1")


@pytest.mark.parametrize("why", ["ECC errors", "stagewatch: a GPU is lost"])
def test_a_node_that_somebody_else_has_drained_since_stays_drained(
    act: Act, slurm: SlurmCluster, why: str
) -> None:
    """The second reason is one of health-check.sh."""
    act.run("drain", act.case("h1"))
    slurm.run("scontrol", "update", "nodename=h1", "state=drain", f"reason={why}")
    assert f"another reason: {why}" in act.run("undo", "h1")
    assert "DRAIN" in slurm.state("h1")
    assert "nothing of ours" in act.run("undo", "--all")


def test_at_most_so_many_nodes_are_drained_within_an_hour(act: Act, slurm: SlurmCluster) -> None:
    said = act.run("drain", act.case("h1", "h2"), "--nodes-per-hour=1", status=1)
    assert "the limit of nodes per hour is reached (1 taken out)" in said
    assert sum("DRAIN" in slurm.state(node) for node in ("h1", "h2")) == 1
    act.run("undo", "--all")
    slurm.wait(lambda: slurm.idle("h1") and slurm.idle("h2"), "both to be resumed")


def test_the_last_node_of_a_partition_is_never_drained(act: Act, slurm: SlurmCluster) -> None:
    """c1 is all of its partition; of mixed, h3 is the last one once m1 is drained."""
    assert "the last of partition cpu" in act.run("drain", act.case("c1"), status=1)
    slurm.run("scontrol", "update", "nodename=m1", "state=drain", "reason=theirs")
    assert "the last of partition mixed" in act.run("drain", act.case("h3"), status=1)
    assert slurm.state("h3") == "IDLE"


@pytest.mark.parametrize("node", ["nobody", "h[1-3]"])
def test_what_is_not_one_node_drains_nothing(act: Act, slurm: SlurmCluster, node: str) -> None:
    assert "knows no such node" in act.run("drain", act.case(node), status=1)
    assert all("DRAIN" not in slurm.state(node) for node in NODES)


def test_a_hostile_name_of_a_job_is_only_text(act: Act, slurm: SlurmCluster) -> None:
    why = 'XID 79; rank 5 of job "x" State=IDLE Reason=fine [root@now]\n Comment=theirs waits'
    act.run("drain", act.case("h1", why=why))
    (node,) = [one for one in act.site._nodes().values() if one.name == "h1"]
    assert node.reason.startswith("stagewatch: XID 79; rank 5 of job _x_ State_IDLE Reason_fine")
    assert "DRAIN" in node.flags
    assert node.reason_user == "root"


def test_a_comment_marks_a_node_that_goes_on_to_take_jobs(act: Act, slurm: SlurmCluster) -> None:
    act.run("comment", act.case("h1"))
    assert "Comment=stagewatch: XID 79; rank 5" in act.shown("h1")
    assert slurm.state("h1") == "IDLE"
    assert "the comment of h1 is removed" in act.run("undo", "h1")
    assert "stagewatch" not in act.shown("h1")


def test_a_comment_of_somebody_else_stays(act: Act, slurm: SlurmCluster) -> None:
    slurm.run("scontrol", "update", "nodename=h1", "comment=rack 7, do not move")
    said = act.run("comment", act.case("h1"), status=1)
    assert "a comment of somebody else, which stays" in said
    assert "Comment=rack 7, do not move" in act.shown("h1")
    assert "nothing of ours" in act.run("undo", "h1")


def test_a_job_s_comment_is_written_unless_it_is_its_user_s(act: Act, slurm: SlurmCluster) -> None:
    bare, theirs = slurm.submit("-w", "h1"), slurm.submit("-w", "h2", "--comment=mine")
    act.site.comment_job(bare, "stagewatch: it stands still")
    assert "Comment=stagewatch: it stands still" in slurm.run("scontrol", "show", "job", bare)
    act.site.comment_job(bare, "stagewatch: it goes on")
    assert "Comment=stagewatch: it goes on" in slurm.run("scontrol", "show", "job", bare)
    with pytest.raises(SourceError, match="somebody else"):
        act.site.comment_job(theirs, "stagewatch: it stands still")
    with pytest.raises(SourceError, match="is no job of Slurm"):
        act.site.comment_job("1 nodename=h1 state=down", "stagewatch: x")


@contextmanager
def rights(slurm: SlurmCluster, level: str) -> Iterator[None]:
    """The user games has them."""
    slurm.run("sacctmgr", "-i", "add", "user", "games", "account=root", f"adminlevel={level}")
    users = "flags=users"
    try:
        known = ("scontrol", "show", "assoc_mgr", users)
        slurm.wait(lambda: "games" in slurm.run(*known), "the rights to be known")
        yield
    finally:
        slurm.run("sacctmgr", "-i", "delete", "user", "games")


def test_operators_may_comment_on_jobs_and_administrators_mark_nodes(
    act: Act, slurm: SlurmCluster
) -> None:
    act.as_games = True
    act.case("h1")
    assert "Invalid user id" in act.run("drain", "-", status=1)
    job = slurm.submit("-w", "h1", user="daemon")
    comment = [*AS_GAMES, "scontrol", "update", f"jobid={job}", "comment=x"]
    with pytest.raises(StagewatchError, match="Invalid user id"):
        slurm.run(*comment)
    with rights(slurm, "Operator"):
        slurm.run(*comment)
        assert "Invalid user id" in act.run("drain", "-", status=1)
    with rights(slurm, "Administrator"):
        act.run("drain", "-")
        assert "h1 is resumed" in act.run("undo", "h1")


def test_judges_that_may_drain_do_so_once_where_a_gpu_is_lost_and_nowhere_else(
    act: Act, slurm: SlurmCluster, children: Children, tmp_path: Path
) -> None:
    """Rank 5 of job 7 holds it up, on h3, by a lost GPU; rank 5 of job 8 by its code, on h2.

    Two judges look; a third comes when somebody has taken h3 back.
    """
    now = time.time()
    made = Past(now - 900, now, step=5.0)
    hung = SPINNING | {
        "progress_age_seconds": 90.0,
        "inside": {"world": Inside("all_reduce", 88.0)},
    }
    for job_id, node in (("7", "h3"), ("8", "h2")):
        left = LEFT | {"progress_age_seconds": 90.0, "node": node, "gpu": f"GPU-{node}"}
        ranks = job(8, hung | {"node": "h1"}, job_id=job_id, rank_5=left)
        export(made, ranks)
    made.add("up", 1.0, job="stagewatch", cluster="c", node="h1")
    lost = {"alertname": "GPULost", "cluster": "c", "node": "h3", "uuid": "GPU-h3"}
    made.add("ALERTS", 1.0, alertstate="firing", **lost)
    made.add("ALERTS_FOR_STATE", now - 95, **lost)
    url = filled_prometheus(children, tmp_path / "p", made)

    def judge(name: str) -> Path:
        argv = [sys.executable, "-m", "stagewatch.cli", "judge", "--listen=127.0.0.1:0"]
        argv += [f"--prometheus={url}", f"--case-dir={tmp_path / name}", "--act=drain"]
        children.start(argv, environ=slurm.env, log=tmp_path / f"{name}.log")
        return tmp_path / name

    def done(*judges: Path) -> int:
        logs = [judge.with_suffix(".log").read_text() for judge in judges]
        return sum("drain of h3 is done" in log for log in logs)

    one, other = judge("one"), judge("other")
    slurm.wait(lambda: "DRAIN" in slurm.state("h3"), "h3 to be drained")
    slurm.wait(lambda: (one / "acted.json").exists(), "a judge to note it")
    slurm.wait(lambda: (other / "acted.json").exists(), "the other to note it")
    shown = act.shown("h3")
    assert "Reason=stagewatch: the driver does not reach the GPU; rank 5 of job 7 left" in shown
    cases = {case.name: case for judge in (one, other) for case in judge.glob("*-7-*.json.gz")}
    (name,) = (name for name in cases if f"case {name}" in shown.replace("\n   ", ""))
    assert "h3, GPU GPU-h3: sure, GPU" in act.run("show", str(cases[name]))
    assert slurm.state("h2") == "IDLE"
    (by_code,) = one.glob("*-8-*.json.gz")
    act.run("show", str(by_code), status=3)
    assert done(one, other) >= 1
    act.run("undo", "h3")
    third = judge("third")
    slurm.wait(lambda: (third / "acted.json").exists(), "the third to read what was done")
    assert done(third) == 0
    assert "DRAIN" not in slurm.state("h3")
