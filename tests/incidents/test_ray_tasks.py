"""For whose tasks processes of Ray wait: what Ray 2.60 has told, stand-ins that lie, and real Ray.

`ray_2.60.json` has its answers about a driver and two rollout workers, in one of which a reward
actor never returns, and in the other an environment actor was killed and found no place again.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.errors import NoData
from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import Procfs
from stagewatch.incidents.collector import IncidentsCollector
from stagewatch.incidents.files import IncidentDirectory, read, with_evidence
from stagewatch.incidents.kernel_waits import NOTHING, Awaited, kernel_waits
from stagewatch.incidents.ray_tasks import MAX_BYTES, waits
from stagewatch.judgement.facts import KernelWait
from stagewatch.judgement.from_node import observe
from stagewatch.judgement.judge import judge
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.model import Rank
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.stacks import StackTaker
from stagewatch.ranks.waits.look import Waits
from stagewatch.ranks.waits.model import Kind, Process, State, Wait, Waiting
from tests.client.hooking import needs
from tests.golden import FIXTURES
from tests.serving import Reply, Request, WebServer
from tests.waiting import wait_for

SAID = json.loads((FIXTURES / "ray_2.60.json").read_text())
DRIVER = {"reward": 30518, "dead": 6970}
ROLLOUTS = {"reward": (32286, 32284), "dead": (9925, 9926)}
REWARD = 31672


@dataclass
class Dashboard:
    """Answers by path; what was asked for, with the token."""

    answers: dict[str, Any]
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    port: int = 0

    def targets(self, *pids: int, since: float = 0.0, **environ: str) -> list[dict[str, Any]]:
        environ = {
            "RAY_JOB_ID": "01",
            "RAY_API_SERVER_ADDRESS": f"http://head:{self.port}",
        } | environ
        return [
            {"pid": pid, "uid": os.getuid(), "reachable": True, "environ": environ, "since": since}
            for pid in pids
        ]


@pytest.fixture
def dashboard() -> Iterator[Callable[[Any], Dashboard]]:
    servers: list[WebServer] = []

    def start(answers: Any) -> Dashboard:
        made = Dashboard(answers)

        def answer(request: Request) -> Reply:
            path = request.path.partition("?")[0]
            made.asked.append((path, request.headers["Authorization"]))
            told = made.answers[path] if isinstance(made.answers, dict) else made.answers
            return Reply(told if isinstance(told, bytes) else json.dumps(told).encode())

        servers.append(WebServer(answer))
        made.port = servers[-1].port
        return made

    yield start
    for server in servers:
        server.close()


def who(told: list[tuple[int, list[dict[str, Any]]]]) -> dict[int, set[tuple[int, str]]]:
    return {pid: {(one["pid"], one["who"]) for one in those} for pid, those in told}


def test_who_has_submitted_a_task_waits_for_whoever_does_it(
    dashboard: Callable[[Any], Dashboard],
) -> None:
    first, second = ROLLOUTS["reward"]
    ray = dashboard(SAID["reward"])
    lines, told = waits(ray.targets(DRIVER["reward"], first, second))
    score = {(REWARD, f"Reward.score (pid {REWARD})")}
    assert lines == []
    assert who(told) == {
        DRIVER["reward"]: {(pid, f"Rollout.generate (pid {pid})") for pid in (first, second)},
        first: score,
        second: score,
    }
    assert who(waits(ray.targets(DRIVER["reward"]))[1]) == {DRIVER["reward"]: score}
    assert {path for path, _ in ray.asked} == set(SAID["reward"])


def test_a_task_whose_actor_has_no_place_is_told(dashboard: Callable[[Any], Dashboard]) -> None:
    ray = dashboard(SAID["dead"])
    _, told = waits(ray.targets(*ROLLOUTS["dead"], RAY_AUTH_TOKEN="secret"))
    assert who(told) == {pid: {(0, "a place for Env.act")} for pid in ROLLOUTS["dead"]}
    assert {token for _, token in ray.asked} == {"Bearer secret"}


def test_a_task_that_ran_long_before_the_last_mark_is_not_waited_for(
    dashboard: Callable[[Any], Dashboard],
) -> None:
    """As one that runs for ever beside the program."""
    made = SAID["reward"]["/api/v0/tasks"]["data"]["result"]["result"][0]["events"][0]["created_ms"]
    ray = dashboard(SAID["reward"])
    for since, count in ((0.1, 1), (120.0, 1), (1000.0, 0)):
        ((_, found),) = waits(ray.targets(DRIVER["reward"], since=made / 1000 + since))[1]
        assert len(found) == count
    answers = deepcopy(SAID["reward"])
    rollout = answers["/api/v0/tasks"]["data"]["result"]["result"][0]
    for event in rollout["events"]:
        event["created_ms"] -= 60_000
    _, told = waits(dashboard(answers).targets(DRIVER["reward"], since=made / 1000))
    assert who(told) == {DRIVER["reward"]: {(REWARD, f"Reward.score (pid {REWARD})")}}


def test_a_task_that_has_just_begun_and_one_of_another_node(
    dashboard: Callable[[Any], Dashboard],
) -> None:
    answers = deepcopy(SAID["reward"])
    score, *_ = (
        one
        for one in answers["/api/v0/tasks"]["data"]["result"]["result"]
        if one["worker_pid"] == REWARD
    )
    score["node_id"] = "another"
    first = ROLLOUTS["reward"][0]
    _, told = waits(dashboard(answers).targets(first))
    assert who(told) == {first: {(0, f"Reward.score (pid {REWARD} of another node)")}}
    score["events"].append({"state": "RUNNING", "created_ms": time.time() * 1000})
    assert who(waits(dashboard(answers).targets(first))[1]) == {first: set()}


def test_nobody_is_asked_outside_of_ray_or_where_its_user_does_not_listen(
    dashboard: Callable[[Any], Dashboard],
) -> None:
    ray = dashboard(SAID["dead"])
    (target,) = ray.targets(ROLLOUTS["dead"][0])
    elsewhere = {"RAY_JOB_ID": "01", "RAY_API_SERVER_ADDRESS": "http://head:1"}
    for change in ({"environ": {}}, {"reachable": False}, {"uid": 4711}, {"environ": elsewhere}):
        assert waits([target | change]) == ([], [])
    assert not ray.asked


def test_a_hostile_answer_costs_a_line(dashboard: Callable[[Any], Dashboard]) -> None:
    for answer in (
        b"",
        b"[" * 100_000,
        b"\xff" * 100,
        {},
        {"data": {"result": {"result": [1]}}},
        {"data": {"result": {"result": [{"events": [{"created_ms": "x"}], "state": 1}]}}},
        b" " * (MAX_BYTES + 1),
    ):
        lines, told = waits(dashboard(answer).targets(4711))
        assert len(lines) == 1 and told == []


def test_a_dashboard_that_never_answers_is_left(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = Dashboard({}, port=server.getsockname()[1])
        lines, told = waits(silent.targets(4711), 0.2)
    assert told == [] and lines[0].endswith("no answer within 0.2 s")


def test_in_ray_the_thread_that_works_counts_and_ray_itself() -> None:
    """The other threads of all its processes keep connections with one another."""
    pids = {"driver": 10, "rollout": 11, "train": 12}
    ranks = [Rank("540", role, 0, pid) for role, pid in pids.items()]
    processes = {pid: Process(pid, 1, State.INWARD, "ray", thread=pid) for pid in pids.values()}
    own = [Wait(pid, pid, Kind.OWN, "futex", 9.0) for pid in pids.values()]
    others = [Wait(pid, pid + 50, Kind.TCP, "epoll_wait", 9.0, targets=(10,)) for pid in (11, 12)]
    waiting = Waiting(processes, (*own, *others))
    ray = {10: (Awaited(11, "Rollout.generate", ""), Awaited(0, "", "a place for Env.act")), 11: ()}
    told = kernel_waits(waiting, ranks, Procfs(), ray)
    assert told == {
        ("540", "driver", "0"): (
            KernelWait("Rollout.generate of Ray", "rollout", 0),
            KernelWait("a task of Ray", process="a place for Env.act"),
        ),
        ("540", "rollout", "0"): (KernelWait("a wait for a thread or process of its own"),),
        ("540", "train", "0"): (NOTHING,),
    }
    unanswered = kernel_waits(waiting, ranks, Procfs(), {})
    assert set(unanswered.values()) == {(NOTHING,)}


PROGRAM = """
import os, sys, time
import ray, stagewatch

fault, port, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]
names = ("STAGEWATCH_JOB_ID", "STAGEWATCH_DIR", "PYTHONPATH", "RAY_API_SERVER_ADDRESS")
ray.init(
    num_cpus=4, include_dashboard=True, dashboard_port=port, _temp_dir=place,
    object_store_memory=80 << 20, runtime_env={"env_vars": {one: os.environ[one] for one in names}},
)

class Monitor:
    def watch(self):
        time.sleep(86400)

class Reward:
    def pid(self):
        return os.getpid()

    def score(self, step):
        if fault == "reward" and step == 12:
            time.sleep(86400)

class Rollout:
    def __init__(self, rank, reward):
        self.rank, self.reward = rank, reward
        stagewatch.init("rollout", rank=rank, world_size=2)

    def pid(self):
        return os.getpid()

    def generate(self, step):
        with stagewatch.stage("rollout", step=step):
            if fault == "rollout" and step == 12 and self.rank == 1:
                time.sleep(86400)
            ray.get(self.reward.score.remote(step))

monitor = ray.remote(num_cpus=0)(Monitor).remote()
watching = monitor.watch.remote()
reward = ray.remote(num_cpus=0)(Reward).remote()
rollouts = [ray.remote(num_cpus=0)(Rollout).remote(rank, reward) for rank in range(2)]
pids = ray.get([rollouts[1].pid.remote(), reward.pid.remote()])
stagewatch.init("driver", rank=0, world_size=1)
for step in range(1000):
    if step == 12:
        print("pids", *pids, flush=True)
    with stagewatch.stage("step", step=step):
        ray.get([one.generate.remote(step) for one in rollouts])
        time.sleep(0.3)
"""


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        ("rollout", "rank 1 (pid {}) holds up the job"),
        ("reward", "they wait for Reward.score (pid {}) in a task of Ray"),
    ],
)
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("ray")
def test_real_ray_leads_to_the_actor_that_never_returns(
    fault: str, names: str, children: Children, tmp_path: Path
) -> None:
    needs("ray")
    needs("aiohttp_cors")  # of its dashboard, ray[default]
    port, place = free_port(), Path(f"/tmp/ray-{os.getpid()}-{fault}")
    (tmp_path / "ranks").mkdir()
    environ = os.environ | {
        "STAGEWATCH_DIR": str(tmp_path / "ranks"),
        "STAGEWATCH_JOB_ID": fault,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{port}",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [sys.executable, "-c", PROGRAM, fault, str(port), str(place)]
    children.start(command, environ=environ, log=tmp_path / "log")
    proc, files = Procfs(), GuardedFiles()
    records = RecordDirectory(tmp_path / "ranks", proc)
    ranks = RankDirectory(records, fresh_for=0.0)
    collector = IncidentsCollector(
        *(ranks, proc, IncidentDirectory(tmp_path / "incidents"), StackTaker(program="")),
        files=files,
        waits=Waits(),
    )

    log = tmp_path / "log"

    def told() -> str:
        try:
            collector.collect()
        except NoData:
            return ""
        facts = observe(ranks, proc, looks=2, pause=0.3)
        kept = with_evidence(facts, read(tmp_path / "incidents", {fault}), time.time())
        verdicts = [one for one in judge(kept) if one.stalled]
        found = "\n".join(map(sentence, verdicts))
        return found if any(one.kernel_waits for one in kept) and expected in found else ""

    try:
        wait_for(lambda: "pids" in log.read_text(), "step 12", limit=180.0)
        rollout, reward = log.read_text().partition("pids ")[2].split()[:2]
        expected = names.format(rollout if fault == "rollout" else reward)
        found = wait_for(told, "a verdict", limit=120.0, pause=1.0)
    finally:
        collector.close()
        records.close()
        files.close()
        children.stop()
        shutil.rmtree(place, ignore_errors=True)
    assert found.count("holds up the job") == (fault == "rollout")
    assert "Monitor" not in found
