"""The agent's collector `incidents` over real ranks that are stuck in named functions."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples
from stagewatch.core.processes import Children
from stagewatch.host.procfs import Procfs
from stagewatch.incidents import collector
from stagewatch.incidents.collector import FRAME, WAITS, IncidentsCollector
from stagewatch.incidents.files import IncidentDirectory
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.environment_scan import EnvironmentScan
from stagewatch.ranks.model import Rank, RankKey
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.stacks import Frame, StackTaker, Take
from tests.fakes.open_files import OpenFiles
from tests.incidents.test_libraries import Recorder, dump, entry, variables
from tests.node_agent import NodeAgent
from tests.running import Python, run_stagewatch
from tests.waiting import wait_for

TRAINER = """
import signal, sys, time, stagewatch

class GoOn(Exception):
    pass

def go_on(*_):
    raise GoOn

def length_reward():
    time.sleep(600)

def wait_for_peers():
    time.sleep(600)

signal.signal(signal.SIGUSR1, go_on)
rank = int(sys.argv[1])
stagewatch.init(job_id="540", role="train", rank=rank, world_size=4)
step = 0
while True:
    with stagewatch.stage("train"):
        for _ in range(100):
            step += 1
            stagewatch.heartbeat(step=step)
            time.sleep(0.005)
        try:
            length_reward() if rank == 2 else wait_for_peers()
        except GoOn:
            stagewatch.heartbeat(step=step + 1)
"""
RANKS = ("0", "1", "2", "3")


@pytest.fixture
def start(children: Children, tmp_path: Path) -> Callable[[], list[int]]:
    """Starts four ranks of one job, and returns their processes."""
    (tmp_path / "train.py").write_text(TRAINER)

    def four() -> list[int]:
        return [
            children.start(
                [sys.executable, str(tmp_path / "train.py"), rank],
                environ=os.environ | {"STAGEWATCH_DIR": str(tmp_path / "ranks")},
            ).pid
            for rank in RANKS
        ]

    return four


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "incidents"


@pytest.fixture
def agent(tmp_path: Path, kept: Path) -> Iterator[NodeAgent]:
    running = NodeAgent(tmp_path, "--collector.incidents.dir", str(kept))
    running.start()
    yield running
    running.stop()


def frames(agent: NodeAgent) -> dict[str, str]:
    """By rank."""
    return {
        dict(labels)["rank"]: dict(labels)["frame"]
        for name, labels in agent.series()
        if name == "rl_rank_stack_frame_info"
    }


def groups(agent: NodeAgent) -> dict[str, str]:
    """Of ranks that stayed where they were."""
    return {
        dict(labels)["rank"]: dict(labels)["group"]
        for (name, labels), still in agent.series().items()
        if name == "rl_rank_stack_group" and still
    }


def line_of(function: str) -> int:
    return TRAINER.splitlines().index(f"def {function}():") + 2


def test_an_agent_tells_where_the_ranks_of_a_job_hang(
    agent: NodeAgent,
    start: Callable[[], list[int]],
    kept: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prefix = tmp_path / "fr_"
    late = pickle.dumps(dump(entry(811, "completed"), members=4))
    there = pickle.dumps(dump(entry(811, "completed"), entry(812, "scheduled"), members=4))
    for rank in range(4):
        Recorder(prefix, rank, late if rank == 2 else there)
    for name, value in variables(prefix).items():
        monkeypatch.setenv(name, value)
    pids = start()
    wait_for(lambda: len(frames(agent)) == 4, "the ranks are looked at")
    reward = f"train.py:{line_of('length_reward')} in length_reward"
    peers = f"train.py:{line_of('wait_for_peers')} in wait_for_peers"
    assert frames(agent) == {rank: reward if rank == "2" else peers for rank in RANKS}
    by_rank = groups(agent)
    assert by_rank["0"] == by_rank["1"] == by_rank["3"] != by_rank["2"]
    assert reward in agent.get("/")[1]

    (file,) = kept.glob("2*.json")
    content = json.loads(file.read_text())
    (sentence,) = content["sentences"]
    assert f"rank 2 (pid {pids[2]})" in sentence
    assert content["ranks"][2]["facts"]["wait_class"] == "parked"
    assert [one["stack"]["still"] for one in content["ranks"]] == [True] * 4
    (line,) = content["libraries"]
    assert line.endswith("rank 2 has not enqueued all_reduce 812, ranks 0, 1, 3 have")

    said = run_stagewatch("inspect", "--record-dir", str(agent.ranks), "--incident-dir", str(kept))
    assert said.returncode == 3
    assert f"at {reward}" in said.stdout
    assert "rank 2 has not enqueued all_reduce 812" in " ".join(said.stdout.split())

    # A restart takes the incident up, and looks at nobody again.
    agent.stop()
    agent.start()
    wait_for(lambda: groups(agent) == by_rank, "the incident is shown again")
    # So does another hang of the job within ten minutes, of which the old stacks tell nothing.
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    wait_for(lambda: not frames(agent), "the job goes on")
    wait_for(
        lambda: (agent.value("rl_rank_progress_age_seconds", rank="2") or 0) > 16, "it hangs again"
    )
    assert not frames(agent)
    assert list(kept.glob("2*.json")) == [file]


class Node:
    """The collector in this process, over the records of a directory."""

    def __init__(self, directory: Path, kept: Path) -> None:
        directory.mkdir(exist_ok=True)
        proc = Procfs()
        self.records = RecordDirectory(directory, proc)
        self.taker = StackTaker()
        self.still: dict[RankKey, float] = {}
        """For how long ranks have moved nothing."""
        scan = EnvironmentScan(proc, OpenFiles(proc.root), patience=60)
        self.collector = IncidentsCollector(
            RankDirectory(self.records, scan, fresh_for=0.0),
            proc,
            IncidentDirectory(kept),
            self.taker,
            still=self.still.get,
        )

    def look(self) -> Samples | None:
        """What it shows, a moment after the last look."""
        time.sleep(0.2)
        try:
            return self.collector.collect()
        except NoData:
            return None

    def close(self) -> None:
        self.collector.close()
        self.records.close()


@pytest.fixture
def node(tmp_path: Path, kept: Path) -> Iterator[Callable[[], Node]]:
    made = []

    def make() -> Node:
        made.append(Node(tmp_path / "ranks", kept))
        return made[-1]

    yield make
    for each in made:
        each.close()


def start_one(children: Children, directory: Path, job: str) -> None:
    """Start rank 2 of a job, which hangs."""
    script = directory / f"train{job}.py"
    script.write_text(TRAINER.replace('"540"', f'"{job}"'))
    children.start(
        [sys.executable, str(script), "2"],
        environ=os.environ | {"STAGEWATCH_DIR": str(directory / "ranks")},
    )


def test_a_node_is_not_kept_busy_by_many_jobs_that_hang(
    node: Callable[[], Node],
    children: Children,
    tmp_path: Path,
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "MAX_LOOKS", 4)
    monkeypatch.setattr(collector, "APART_SECONDS", 0.5)
    monkeypatch.setattr(collector, "PAUSES_SECONDS", (0.1,))
    here = node()
    for number in range(4):
        start_one(children, tmp_path, str(number))
    wait_for(lambda: here.look() and len(list(kept.glob("2*.json"))) == 2, "two incidents")
    for _ in range(15):
        here.look()
    assert len(list(kept.glob("2*.json"))) == 2


def test_a_job_that_hangs_later_does_not_hide_the_stacks_of_another(
    node: Callable[[], Node],
    children: Children,
    tmp_path: Path,
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "MAX_JOBS", 1)
    monkeypatch.setattr(collector, "APART_SECONDS", 0.1)
    here = node()
    samples = Samples()

    def seen(incidents: int) -> bool:
        nonlocal samples
        samples = here.look() or Samples()
        return len(list(kept.glob("2*.json"))) == incidents

    for incidents, job in enumerate(("5", "1"), 1):
        start_one(children, tmp_path, job)
        wait_for(lambda: seen(incidents), f"the incident of job {job}")  # noqa: B023
    assert {labels[0] for labels in samples.families[FRAME]} == {"5"}


def test_a_job_that_still_hangs_is_looked_at_again_and_its_incident_made_anew(
    node: Callable[[], Node],
    start: Callable[[], list[int]],
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a rank was in once, by chance, does not settle who is named."""
    monkeypatch.setattr(collector, "APART_SECONDS", 0.1)
    monkeypatch.setattr(collector, "PAUSES_SECONDS", (0.1, 0.1))
    here = node()
    pids = start()
    take, looks = here.taker.take, 0

    def misread(ranks: Iterable[Rank]) -> dict[int, Take]:
        """The first two looks find rank 0 in a place of its own, and do not reach rank 1."""
        nonlocal looks
        looks += 1
        found = take(ranks)
        if looks <= 2:
            found[pids[0]] = Take((("MainThread", (Frame("collect", "/x/run.py", 3),)),))
            found[pids[1]] = Take(problem="no time was left for it")
        return found

    monkeypatch.setattr(here.taker, "take", misread)
    wait_for(here.look, "an incident")
    (file,) = kept.glob("2*.json")
    assert "it is at a different place in the code from all others" not in file.read_text()
    wait_for(lambda: here.look() and looks == 6, "four more looks")
    wait_for(lambda: here.look() and "at a different place" in file.read_text(), "a verdict")
    content = json.loads(file.read_text())
    assert f"rank 2 (pid {pids[2]})" in content["sentences"][0]
    assert [one["stack"]["still"] for one in content["ranks"]] == [False, True, True, True]
    assert list(kept.glob("2*.json")) == [file]
    for _ in range(15):
        here.look()
    assert looks == 6


WITHOUT_RECORDS = """
import os, sys, threading, time
if sys.argv[1] == "1":
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
while True:
    time.sleep(0.2)
"""


def test_the_kernel_is_asked_about_ranks_without_records_that_stand_still_for_long(
    node: Callable[[], Node], python: Python, kept: Path
) -> None:
    here = node()
    job = f"bare-{os.getpid()}"
    keys = [(job, "unknown", str(rank)) for rank in range(3)]
    for rank in range(3):
        started = {"RANK": str(rank), "WORLD_SIZE": "3", "STAGEWATCH_JOB_ID": job}
        python(WITHOUT_RECORDS, rank, **started)
    here.still |= dict.fromkeys(keys, 299.0)
    for _ in range(5):
        assert here.look() is None
    here.still |= dict.fromkeys(keys, 301.0)

    def waits() -> dict[str, str]:
        told = (here.look() or Samples()).families.get(WAITS, {})
        return {labels[2]: labels[3] for labels in told if labels[0] == job and labels[3]}

    wait_for(waits, "the kernel's answer")
    assert waits() == {"1": "a wait for a thread or process of its own"}
    (file,) = kept.glob("2*.json")
    assert "a wait for a thread or process of its own" in file.read_text()
    here.still[keys[0]] = 0.0
    assert here.look() is None
