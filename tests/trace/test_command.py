"""`stagewatch trace` as an operator runs it: ranks that hang, and one that was killed."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from stagewatch.cli import main
from stagewatch.core.processes import Children
from stagewatch.demo.prometheus import arguments, write_config
from stagewatch.demo.stack import free_port
from stagewatch.faults.markers import Marker, write_marker
from stagewatch.prometheus.api import PrometheusApi
from tests.node_agent import NodeAgent
from tests.running import Python, run_stagewatch
from tests.trace import perfetto
from tests.trace.trace_format import Event, checked, names_of
from tests.waiting import wait_for

KILLED = 1
RANK = """
import os, sys, time, stagewatch
stagewatch.init("train")
rank = int(os.environ["RANK"])
for step in range(20):
    with stagewatch.stage("rollout", step=step):
        pass
    with stagewatch.stage("train", step=step), stagewatch.collective("world", op="all_reduce"):
        pass
    stagewatch.scalar("loss", 1 / (step + 1))
if rank == 1:
    with stagewatch.stage("weights_update", step=20, substage="broadcast"):
        print("there", flush=True)
        time.sleep(1000)
with stagewatch.stage("train", step=20), stagewatch.collective("world", op="all_reduce", size=3):
    print("there", flush=True)
    time.sleep(1000)
"""

run_trace = partial(run_stagewatch, "trace")


@pytest.fixture
def hanging(python: Python, tmp_path: Path) -> Path:
    """The record directory of three ranks of job 540, of which the second was killed."""
    directory = tmp_path / "ranks"
    directory.mkdir()
    environ = {"STAGEWATCH_DIR": str(directory), "STAGEWATCH_JOB_ID": "540", "WORLD_SIZE": "3"}
    ranks = [python(RANK, **environ, RANK=str(number)) for number in range(3)]
    for rank in ranks:
        rank.said("there")
    ranks[KILLED].kill()
    return directory


@pytest.fixture
def agent(hanging: Path, tmp_path: Path) -> Iterator[Callable[..., NodeAgent]]:
    """Starts a node agent that sees these ranks."""
    agents: list[NodeAgent] = []

    def start(*flags: str) -> NodeAgent:
        agent = NodeAgent(tmp_path, *flags)
        agents.append(agent)
        agent.start()
        return agent

    yield start
    for agent in agents:
        agent.stop()


def last_stage(events: list[Event], rank: str) -> Event:
    """The latest slice of a rank's training thread."""
    (process,) = [
        pid for pid, name in names_of(events, "process_name").items() if name.startswith(rank)
    ]
    threads = names_of(events, "thread_name")
    stages = [
        event
        for event in events
        if event["ph"] == "X"
        and event["pid"] == process
        and threads[process, event["tid"]] == "training thread"
    ]
    return max(stages, key=lambda event: event["ts"])


def says_what_happened(events: list[Event]) -> None:
    """What any trace of these ranks must show."""
    killed = last_stage(events, "train/1")
    assert killed["name"] == "weights_update/broadcast"
    assert killed["args"] == {"step": 20, "open": True}
    assert "(gone)" in names_of(events, "process_name")[killed["pid"]]
    for rank in ("train/0", "train/2"):
        stage = last_stage(events, rank)
        assert (stage["name"], stage["args"]) == ("train", {"step": 20, "open": True})
        (inside,) = [
            event
            for event in events
            if event["pid"] == stage["pid"] and event.get("args", {}).get("sequence") == 21
        ]
        assert (inside["ph"], inside["name"]) == ("X", "all_reduce")
        assert inside["args"]["open"]


def test_the_trace_of_this_node_shows_the_last_stage_of_a_killed_rank(
    hanging: Path, tmp_path: Path
) -> None:
    faults = tmp_path / "faults"
    faults.mkdir()
    write_marker(faults, Marker("kill-1", "process_kill", 1.0, target_worker="train/1"))
    output = tmp_path / "trace.json"
    done = run_trace("--record-dir", hanging, "--fault-dir", faults, "-o", output)
    assert done.returncode == 0, done.stderr
    events = checked(output.read_text())
    says_what_happened(events)
    processes = names_of(events, "process_name")
    by_process = {processes[event["pid"]]: event["name"] for event in events if event["ph"] == "X"}
    assert by_process["faults"] == "kill-1"


@pytest.mark.skipif(perfetto.missing() != "", reason=perfetto.missing())
def test_perfetto_loads_every_event_of_the_trace(hanging: Path, tmp_path: Path) -> None:
    output = tmp_path / "trace.json.gz"
    done = run_trace("--record-dir", hanging, "-o", output)
    assert done.returncode == 0, done.stderr
    events = checked(gzip.decompress(output.read_bytes()).decode())
    complaints, processes, slices, counters, ends, killed = perfetto.ask(
        output.read_bytes(),
        "SELECT json_array(name, value) FROM stats "
        "WHERE severity IN ('error', 'data_loss') AND value > 0",
        "SELECT json_quote(name) FROM process WHERE name IS NOT NULL",
        "SELECT json_array(count(*), min(ts)) FROM slice",
        "SELECT json_quote(count(*)) FROM counter",
        "SELECT json_quote(count(*)) FROM slice WHERE extract_arg(arg_set_id, 'args.open')",
        "SELECT json_array(slice.name, extract_arg(slice.arg_set_id, 'args.step')) FROM slice "
        "JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid) "
        "JOIN process USING (upid) WHERE process.name GLOB 'train/1*' "
        "AND thread.name = 'training thread' ORDER BY ts DESC LIMIT 1",
    )
    assert complaints == []
    assert sorted(processes) == sorted(names_of(events, "process_name").values())
    shown = [event for event in events if event["ph"] in "Xi"]
    ((count, first),) = slices
    assert count == len(shown)
    assert first == pytest.approx(min(event["ts"] for event in shown) * 1000, abs=1)
    assert counters == [sum(len(event["args"]) for event in events if event["ph"] == "C")]
    assert ends == [sum("open" in event.get("args", {}) for event in shown)]
    assert killed == [["weights_update/broadcast", 20]]


def test_a_job_that_is_not_there_is_told_with_those_that_are(
    hanging: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["--record-dir", str(hanging), "-o", str(tmp_path / "trace.json")]
    assert main(["trace", "--job", "541", *output]) == 1
    assert "no rank of job 541" in (said := capsys.readouterr().err)
    assert "there are 540" in said
    assert list(tmp_path.glob("*trace.json*")) == []
    assert main(["trace", *output[:2], "-o", str(tmp_path / "missing" / "trace.json")]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_a_prometheus_knows_the_agents_and_how_the_ranks_waited(
    agent: Callable[..., NodeAgent], children: Children, tmp_path: Path
) -> None:
    installed = shutil.which("prometheus")
    if installed is None:
        pytest.skip("needs Prometheus on the PATH")
    node = agent()
    port = free_port()
    (tmp_path / "prometheus").mkdir()
    config = write_config(tmp_path / "prometheus", {"n1": f"127.0.0.1:{node.port}"})
    children.start(arguments([installed], config, port), log=tmp_path / "prometheus.log")
    server = f"http://127.0.0.1:{port}"
    api = PrometheusApi(server)
    wait_for(api.ready, "Prometheus answers")
    wait_for(lambda: bool(api.query('rl_rank_wait_class{job_id="540"}')), "wait classes")
    api.close()
    output = tmp_path / "trace.json"
    done = run_trace("--job", "540", "-o", output, "--prometheus", server)
    assert done.returncode == 0, done.stderr
    events = checked(output.read_text())
    says_what_happened(events)
    assert "wait class" in names_of(events, "thread_name").values()
    done = run_trace("--job", "541", "-o", output, "--prometheus", server)
    assert done.returncode == 1
    assert "shows job 541; there are 540" in done.stderr


@pytest.mark.parametrize("flag", ["--agent", "--prometheus"])
def test_asking_others_needs_a_job(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", flag, "http://127.0.0.1:1", "-o", str(tmp_path / "trace.json")]) == 2
    assert f"{flag} needs --job ID" in capsys.readouterr().err
