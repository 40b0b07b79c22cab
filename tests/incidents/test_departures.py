"""Ranks that have left: what the agent remembers of them, and that `inspect` knows it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.processes import Children
from stagewatch.incidents.departures import MAX_PER_USER, NAME, Departures, read
from stagewatch.ranks.model import Rank
from tests.fake_clock import Clock
from tests.judgement.jobs import job
from tests.node_agent import NodeAgent
from tests.running import clean_environ, run_stagewatch
from tests.waiting import wait_for

BOOT = "b0075"


def ranks(*numbers: int, job_id: str = "540", user: int = 1000) -> list[Rank]:
    """Live ranks without records."""
    return [
        Rank(job_id, "train", number, pid=4000 + number, world_size=8, uid=user)
        for number in numbers
    ]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "incidents" / NAME


@pytest.fixture
def seen(file: Path, clock: Clock) -> Departures:
    """An agent's, that has seen four ranks of a job."""
    departures = Departures(file, BOOT, clock=clock)
    departures.look(ranks(0, 1, 2, 3))
    return departures


def told(departures: Departures) -> dict[int, float | None]:
    """Who has left the job, and how long ago."""
    return {rank.rank: rank.left_seconds for rank in departures.facts(job(1))}


def test_who_is_not_there_any_more_has_left(seen: Departures, clock: Clock) -> None:
    seen.look(ranks(0, 2))
    assert told(seen) == {1: 0.0, 3: 0.0}
    clock.now += 40
    seen.look(ranks(0))
    clock.now += 1
    assert told(seen) == {1: 41.0, 2: 1.0, 3: 41.0}


def test_an_agent_that_starts_again_still_knows_but_not_after_a_boot(
    seen: Departures, clock: Clock, file: Path
) -> None:
    seen.look(ranks(0, 1))
    again = Departures(file, BOOT, clock=clock)
    again.look(ranks(0, 1))
    assert told(again).keys() == {2, 3}
    assert told(Departures(file, "another", clock=clock)) == {}


GOOD: dict[str, Any] = {
    "job_id": "540",
    "role": "train",
    "rank": 3,
    "pid": 4003,
    "world_size": 4,
    "user": 1000,
    "time": 990.0,
}


def kept(*departures: object, **changes: object) -> dict[str, Any]:
    """What stands in a file."""
    return {"version": 1, "boot_id": BOOT, "departures": list(departures)} | changes


def test_a_file_that_cannot_be_used_tells_nothing(tmp_path: Path) -> None:
    file = tmp_path / NAME
    for content in (
        kept(GOOD, version=2),
        kept(GOOD | {"rank": -1}),
        kept(GOOD | {"job_id": "\ud800"}),
        kept(GOOD, 7),
        kept(GOOD, departures=None),
        [GOOD],
    ):
        file.write_text(json.dumps(content))
        assert read(file, BOOT) == ()


TRAINER = """
import pathlib, sys, time, stagewatch
rank, go = int(sys.argv[1]), pathlib.Path(sys.argv[2])
stagewatch.init(job_id="540", role="train", rank=rank, world_size=4)
with stagewatch.stage("train"):
    step = 0
    while not go.exists():
        step += 1
        stagewatch.heartbeat(step=step)
        time.sleep(0.02)
    if rank == 0:
        with stagewatch.collective("world", op="barrier", size=4):
            time.sleep(600)
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[NodeAgent]:
    running = NodeAgent(tmp_path, "--collector.incidents.dir", str(tmp_path / "incidents"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def start(tmp_path: Path, children: Children) -> Callable[[int], int]:
    """Starts a rank, and returns its process."""
    (tmp_path / "train.py").write_text(TRAINER)

    def rank(number: int) -> int:
        command = [sys.executable, str(tmp_path / "train.py"), str(number), str(tmp_path / "go")]
        environ = clean_environ({"STAGEWATCH_DIR": str(tmp_path / "ranks")})
        return children.start(command, environ=environ).pid

    return rank


def test_who_waits_in_a_barrier_that_nobody_else_comes_to_is_named(
    agent: NodeAgent, start: Callable[[int], int], file: Path, tmp_path: Path
) -> None:
    """Its peers have ended in good order: neither a record nor a process tells of them."""
    first, *_ = [start(number) for number in range(4)]

    def looks() -> float | None:
        return agent.value("stagewatch_collector_duration_seconds", collector="incidents")

    wait_for(
        lambda: all(agent.value("rl_rank_up", rank=str(number)) for number in range(4)), "all ranks"
    )
    for _ in range(2):
        before = looks()
        wait_for(lambda before=before: looks() != before, "another look at all of them")
    (tmp_path / "go").touch()
    wait_for(lambda: file.exists() and len(json.loads(file.read_text())["departures"]) == 3, "ends")

    def inspect() -> dict[str, Any]:
        flags = ["--record-dir", str(agent.ranks), "--incident-dir", str(file.parent)]
        told = json.loads(run_stagewatch("inspect", "--json", *flags).stdout)["verdicts"]
        # Ranks of other tests, which keep no record, are seen as well.
        (verdict,) = [one for one in told if one["job_id"] == "540"]
        return dict(verdict)

    stalled = wait_for(lambda: (one := inspect())["stalled"] and one, "a hang", pause=5.0)
    assert (stalled["evidence"], stalled["culprits"]) == ("missing", [])
    assert (
        "they wait for ranks that are not here (1, 2, 3): rank 0 in barrier of world"
        in (stalled["sentence"])
    )
    assert "; ranks 1, 2, 3 left, the last one " in stalled["sentence"]

    # As if a minute had passed: both the command and an agent that starts again know of it.
    agent.stop()
    content = json.loads(file.read_text())
    for departure in content["departures"]:
        departure["time"] -= 60
    file.write_text(json.dumps(content))
    named = inspect()
    assert [(one["rank"], one["pid"], one["evidence"]) for one in named["culprits"]] == [
        (0, first, "mismatch")
    ]
    assert f"rank 0 (pid {first}) has been parked" in named["sentence"]
    assert (
        "and waits in barrier of world, to which nobody else comes: ranks 1, 2, 3 left, "
        in (named["sentence"])
    )
    agent.start()
    headline = "the others have left, and rank 0 still waits in barrier of world, in train, at "
    wait_for(lambda: headline in agent.get("/")[1], "the page names it and its line")


def test_one_users_ranks_do_not_crowd_out_anothers(seen: Departures, clock: Clock) -> None:
    seen.look(ranks(0, 1, 2))
    for first in range(0, 2 * MAX_PER_USER, 64):
        clock.now += 1
        others = ranks(*range(first, first + 64), job_id="666", user=1001)
        seen.look([*ranks(0, 1, 2), *others, *ranks(9999, job_id="666", user=1001)])
    seen.look([*ranks(0, 1, 2), *ranks(9999, job_id="666", user=1001)])
    assert told(seen).keys() == {3}
    left = seen.facts(job(1, job_id="666"))
    assert len(left) == MAX_PER_USER
    assert min(rank.rank for rank in left) == MAX_PER_USER, "those that left last are kept"
