"""`stagewatch inspect` as an operator runs it, on real processes and without any agent."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.processes import Children
from stagewatch.demo.rank import Board
from tests.running import Python, clean_environ, run_stagewatch
from tests.waiting import wait_for

RANKS = 4
EARLY = 2
SKEW = "3.0"


class Inspect:
    """Runs the command over one directory and one job."""

    def __init__(self, record_dir: Path, job_id: str) -> None:
        self.record_dir = record_dir
        self.job_id = job_id
        self.status = 0
        self.warnings = ""

    def __call__(self, *arguments: str) -> str:
        """Its output; its exit status and warnings stay in `status` and `warnings`."""
        given = ("--job", self.job_id, "--record-dir", self.record_dir)
        done = run_stagewatch("inspect", *given, *arguments)
        self.status = done.returncode
        assert "Traceback" not in done.stderr
        self.warnings = done.stderr
        return done.stdout

    def json(self) -> dict[str, Any]:
        """What it found, for programs."""
        found: dict[str, Any] = json.loads(self("--json"))
        return found


@pytest.fixture
def inspect(record_dir: Path) -> Inspect:
    return Inspect(record_dir, f"job-{uuid.uuid4().hex[:8]}")


Start = Callable[[], list[int]]


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """What the ranks of the demo's job share."""
    Board.create(tmp_path / "board", RANKS)
    return Board(tmp_path / "board", RANKS)


@pytest.fixture
def start(children: Children, tmp_path: Path, inspect: Inspect, board: Board) -> Start:
    """Starts the demo's job; returns the pids by rank."""

    def start() -> list[int]:
        environ = clean_environ(
            {"STAGEWATCH_DIR": str(inspect.record_dir), "STAGEWATCH_JOB_ID": inspect.job_id}
        )
        pids = []
        for rank in range(RANKS):
            skew = SKEW if rank == EARLY else "0.0"
            command = [sys.executable, "-m", "stagewatch.demo.rank", str(tmp_path / "board")]
            process = children.start([*command, str(rank), str(RANKS), skew], environ=environ)
            pids.append(process.pid)
        return pids

    return start


def test_the_rank_that_left_the_loop_early_is_named(
    inspect: Inspect, start: Start, board: Board, tmp_path: Path
) -> None:
    pids = start()
    wait_for(lambda: board.laps() > 3, "several steps", 200)
    board.set_stop(time.time() + float(SKEW))
    found: dict[str, Any] = {}

    def named() -> bool:
        found.update(inspect.json())
        return any(one["culprits"] for one in found["verdicts"])

    wait_for(named, "the verdict", 200, pause=10.0)
    assert inspect.status == 3
    (verdict,) = found["verdicts"]
    assert verdict.keys() == {"job_id", "role", "stalled", "evidence", "culprits", "sentence"}
    assert (verdict["evidence"], verdict["stalled"]) == ("left_loop_early", True)
    assert verdict["culprits"] == [
        {
            "role": "train",
            "rank": EARLY,
            "pid": pids[EARLY],
            "evidence": "left_loop_early",
            "group": "world",
            "op": "unknown",
        }
    ]
    (tmp_path / "case").write_text(json.dumps(found))
    explained = run_stagewatch("explain", str(tmp_path / "case")).stdout
    assert f"of world for rank {EARLY}, which has entered" in explained
    assert f"rank {EARLY} left the loop early" in explained
    classes = [rank["wait_class"] for rank in found["ranks"]]
    assert classes == ["parked" if rank == EARLY else "spin" for rank in range(RANKS)]
    lines = inspect().splitlines()
    assert lines[0].split()[:5] == ["JOB", "ROLE", "RANK", "PID", "STAGE"]
    assert lines[1 + EARLY].split()[:5] == [
        inspect.job_id, "train", str(EARLY), str(pids[EARLY]), "cleanup",
    ]  # fmt: skip
    assert "futex" in lines[1 + EARLY]
    assert lines[-1].startswith(
        f"job {inspect.job_id}: rank 2 (pid {pids[EARLY]}) has been parked in futex for "
    ), "nobody need act yet"


def test_no_rank_is_told_with_where_was_looked(inspect: Inspect) -> None:
    assert inspect() == (
        f"No rank of job {inspect.job_id} on this node: no stage record in {inspect.record_dir}, "
        "and no process that may be read has RANK or SLURM_PROCID in its environment.\n"
    )
    assert inspect.status == 1
    empty = ("ranks", "verdicts", "stacks", "libraries", "cases", "ended", "processes")
    assert inspect.json() == {key: [] for key in empty}


def test_a_directory_that_was_named_and_does_not_exist_is_an_error(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    done = run_stagewatch("inspect", STAGEWATCH_DIR=str(absent))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"stagewatch: STAGEWATCH_DIR = {str(absent)!r}: must be a directory that exists\n"
    )


def test_a_rank_without_a_record_is_shown_by_its_environment(
    inspect: Inspect, python: Python
) -> None:
    script = python.ready(
        "import time; print('ready'); time.sleep(600)",
        STAGEWATCH_JOB_ID=inspect.job_id,
        SLURM_PROCID="3",
    )
    (rank,) = inspect.json()["ranks"]
    assert (rank["role"], rank["rank"], rank["pid"]) == ("unknown", 3, script.pid)
    assert (rank["stage"], rank["progress_age_seconds"]) == (None, None)
    assert rank["wait_class"] == "parked"
    assert rank["record"] == "none"
    assert "no rank keeps a stage record, so progress cannot be judged" in inspect()
