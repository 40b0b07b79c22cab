"""The scenarios on a real Slurm cluster.  Each fails by itself if an alert, a count or a phase does
not come to pass; what it says of times and places is held against Slurm's own answers here."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagewatch.cli import main
from stagewatch.demo.prometheus import shipped_rules
from stagewatch_lab.slurm.lab import NODES, SlurmLab
from stagewatch_lab.slurm.rules import FOR_SECONDS, INTERVAL_SECONDS, write_rules
from stagewatch_lab.slurm.scenarios import SCENARIOS, play
from stagewatch_lab.slurm.services import missing
from stagewatch_lab.slurm.story import Story
from tests.demo.running import Demo
from tests.deploy.engine import need
from tests.waiting import wait_for

DEMONSTRATED = "requeue-loop"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def slurm_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    """Four nodes, their agents, the Slurm agent and Prometheus."""
    need("prometheus")
    if why := missing():
        pytest.skip(why)
    with SlurmLab(tmp_path_factory.mktemp("cache")) as lab:
        yield lab


@pytest.fixture
def story(slurm_lab: SlurmLab, request: pytest.FixtureRequest, tmp_path: Path) -> Story:
    """One scenario, run to its end; its record is written and read again."""
    story = play(slurm_lab, request.param)
    story.save(tmp_path / "record.json")
    assert json.loads((tmp_path / "record.json").read_text()) == story.record()
    return story


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """The shortest scenario, as a newcomer runs it; in /tmp, since paths of sockets are short."""
    if why := missing() or (None if shutil.which("prometheus") else "needs prometheus"):
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as temporary:
        arguments = ("--scenario", DEMONSTRATED, "--keep", "--json", str(tmp_path / "record.json"))
        running = Demo(tmp_path, Path(temporary), *arguments)
        yield running
        running.end()


def of_slurm(story: Story, name: str) -> str:
    """A value that the controller shows for the story's job; times as Unix seconds."""
    shown = story.lab.slurm.run(
        *("scontrol", "-o", "show", "job", story.job), env={"SLURM_TIME_FORMAT": "%s"}
    )
    match = re.search(rf" {name}=(\S+)", shown)
    assert match, shown
    return match[1]


def marker(story: Story) -> dict[str, Any]:
    """The fault's marker on one of the nodes."""
    found: dict[str, Any] = json.loads(
        (story.lab.fault_dir("n1") / f"{story.record()['fault_id']}.json").read_text()
    )
    return found


def assert_in_order(story: Story, *names: str) -> None:
    """These are phases that came one after the other; Slurm's times are whole seconds."""
    times = {name: int(story.phases[name]) for name in names}
    assert list(times) == sorted(times, key=lambda name: times[name]), times


@pytest.mark.parametrize("story", ["process-killed"], indirect=True)
def test_killed_rank_is_named_and_its_job_resumes_from_its_checkpoint(story: Story) -> None:
    assert_in_order(story, "injection", "detection", "job_end", "job_start", "job_resumed")
    assert story.phases["job_start"] == int(of_slurm(story, "StartTime"))
    assert of_slurm(story, "Restarts") == "1"
    assert story.facts["resumed_step"] == story.facts["checkpoint_step"] >= 5
    assert story.alerts["JobStalled"].labels["rank"] == story.origin["rank"]
    assert marker(story)["fault_type"] == "process_kill"
    assert marker(story)["fault_injection_end"]


@pytest.mark.parametrize("story", ["node-drained"], indirect=True)
def test_drain_alert_says_the_command_that_brings_the_node_back(story: Story) -> None:
    assert_in_order(story, "injection", "node_out", "detection", "node_back")
    assert "job_end" not in story.phases
    assert of_slurm(story, "Restarts") == "0"
    assert story.alerts["SlurmNodeDrained"].labels["node"] == story.origin["node"]
    assert "DRAIN" not in story.lab.slurm.state(story.origin["node"])


@pytest.mark.parametrize("story", ["node-failed"], indirect=True)
def test_job_of_a_dead_node_resumes_elsewhere_under_its_own_id(story: Story) -> None:
    assert_in_order(story, "injection", "node_out", "job_end", "job_start", "job_resumed")
    assert_in_order(story, "node_out", "node_back")
    assert story.phases["job_start"] == int(of_slurm(story, "StartTime"))
    assert of_slurm(story, "Restarts") == "1"
    assert story.facts["resumed_step"] == story.facts["checkpoint_step"] >= 5
    assert all(story.alerts[name].resolved for name in ("SlurmNodeDown", "JobLostNode"))


@pytest.mark.parametrize("story", ["controller-killed"], indirect=True)
def test_dead_controller_ends_no_job_and_silences_no_other_alert(story: Story) -> None:
    assert_in_order(story, "injection", "detection", "controller_back")
    assert of_slurm(story, "Restarts") == "0"
    assert int(of_slurm(story, "StartTime")) < story.phases["injection"]
    stopped = story.alerts["JobStalled"]
    assert story.phases["injection"] < stopped.at < story.phases["controller_back"]


@pytest.mark.parametrize("story", ["no-capacity"], indirect=True)
def test_jobs_without_nodes_wait_for_a_named_reason(story: Story) -> None:
    assert set(story.facts["reasons"]) <= {
        *("Resources", "Priority", "NodesUnavailable", "ReqNodeNotAvail"),
    }
    assert of_slurm(story, "Restarts") == "0"


def test_newcomer_sees_a_requeue_loop_told_and_nothing_outlives_the_demo(demo: Demo) -> None:
    """`stagewatch demo --scenario requeue-loop --keep`, killed when it has shown everything."""
    wait_for(
        lambda: "Ctrl-C ends it" in demo.text() or demo.process.poll() is not None,
        "the demo",
        limit=240,
    )
    assert "Ctrl-C ends it" in demo.text(), demo.text()
    record = json.loads((demo.directory / "record.json").read_text())
    assert record["scenario"] == "requeue-loop"
    (alert,) = record["alerts"]
    assert alert["alert"] == "SlurmRequeueLoop"
    assert alert["labels"]["job_id"] == record["job_id"] == record["origin"]["job_id"]
    assert alert["names_origin"]
    assert alert["resolved_after"] > alert["after"] > 0
    assert len(demo.processes()) > len(NODES)
    demo.end()


@pytest.mark.parametrize("problem", ["tools", "root"])
def test_demo_without_slurm_says_what_to_install(
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000 if problem == "root" else 0)
    assert main(["demo", "--scenario", "node-failed"]) == 2
    said = capsys.readouterr().err
    expected = {"tools": "apt-get install munge slurmctld slurmd", "root": "needs root"}
    assert expected[problem] in said


def test_every_scenario_is_played() -> None:
    played = re.findall(r'"story", \["([\w-]+)"\]', Path(__file__).read_text())
    assert sorted((*played, DEMONSTRATED)) == sorted(SCENARIOS)


def test_rules_are_the_shipped_ones_but_for_their_patience(tmp_path: Path) -> None:
    write_rules(tmp_path / "rules")
    for shipped in shipped_rules():
        ours = list(every_rule(tmp_path / "rules" / shipped.name))
        theirs = list(every_rule(shipped))
        assert all(int(rule.pop("for", "0s")[:-1]) <= FOR_SECONDS for rule in ours)
        for rule in theirs:
            rule.pop("for", None)
            if shipped.name == "goodput.rules.yaml":  # it counts with the interval of its group
                shorter = rule["expr"].replace("15 * ", f"{INTERVAL_SECONDS} * ")
                rule["expr"] = shorter.replace(
                    "> time() - 60", f"> time() - {4 * INTERVAL_SECONDS}"
                )
        assert ours == theirs


def every_rule(file: Path) -> Iterator[dict[str, Any]]:
    """The rules of a file, in order."""
    for group in yaml.safe_load(file.read_text())["groups"]:
        yield from group["rules"]
