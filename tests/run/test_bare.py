"""Ranks without a record: their names, and that one that spins while another waits is told."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.host.procfs import TICKS_PER_SECOND, Procfs
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.model import Rank
from stagewatch.ranks.stacks import Frame, StackTaker, Take
from stagewatch.run import bare, ranks
from stagewatch.run.bare import WORK_SECONDS, BareRanks
from tests.fake_clock import Clock
from tests.fakes.open_files import OpenFiles
from tests.running import clean_environ
from tests.waiting import wait_for

LIMIT = 60.0
LAUNCHER, SPINS, WAITS = 10, 11, 12


class Looks(StackTaker):
    """A taker of made-up stacks: rank 0 is in these functions, one after the other."""

    def __init__(self, *functions: str) -> None:
        self._functions = functions
        self._count = 0

    def take(self, ranks: object) -> dict[int, Take]:
        """One look."""
        self._count += 1
        at = self._functions[self._count % len(self._functions)]
        return {SPINS: Take((("MainThread", (Frame(at, "/home/u/train.py", 7),)),))}


class Watched:
    """A launcher and two ranks of a process file system, looked at by a made-up clock."""

    def __init__(self, proc: Path, clock: Clock) -> None:
        self.proc, self.clock = Procfs(proc), clock
        self.taker: StackTaker = Looks("main")
        self._root = proc
        self._done: dict[int, list[float]] = {}
        for pid in (LAUNCHER, SPINS, WAITS):
            self.does(pid)

    def does(
        self,
        pid: int,
        *,
        state: str = "S",
        cpu: float = 0.0,
        faults: int = 0,
        moved: int = 0,
        wakes: int = 0,
    ) -> None:
        """What a process has done since the last look."""
        before = self._done.get(pid, [0, 0, 0, 0])
        now = [before[0] + cpu, before[1] + faults, before[2] + moved, before[3] + wakes]
        self._done[pid], (cpu, *_) = now, now
        task = self._root / str(pid) / "task" / str(pid)
        task.mkdir(parents=True, exist_ok=True)
        rank = "" if pid == LAUNCHER else f"RANK={pid - SPINS}\0WORLD_SIZE=2\0"
        files = {
            "stat": f"{pid} (python) {state} {1 if pid == LAUNCHER else LAUNCHER} 1 1 0 0 0"
            f" {now[1]} 0 0 0 {round(cpu * TICKS_PER_SECOND)} 0 0 0 20 0 1 0 {pid} 0 0",
            "environ": f"HOME=/\0STAGEWATCH_JOB_ID=7\0{rank}",
            "io": f"rchar: {now[2]}\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n"
            "cancelled_write_bytes: 0\n",
            f"task/{pid}/status": f"Name: python\nvoluntary_ctxt_switches: {now[3]}\n",
        }
        for name, content in files.items():
            (self._root / str(pid) / name).write_text(content)

    def command(self) -> list[Rank]:
        """What stands for the processes that are no ranks."""
        return [Rank("", "command", 0, LAUNCHER)]


@pytest.fixture
def watched(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Two ranks that do nothing."""
    monkeypatch.setattr(bare, "GuardedFiles", OpenFiles)
    return Watched(tmp_path, clock)


def told(watched: Watched, does: Mapping[int, Mapping[str, float]]) -> list[str]:
    """What is said within two limits in which the processes do these things every five seconds."""
    sentences: list[str] = []
    families = ProcessFamilies(watched.command, watched.proc, clock=watched.clock)
    seen = BareRanks(
        watched.command,
        lambda: families.look().rank_of,
        watched.proc,
        limit=LIMIT,
        taker=watched.taker,
        clock=watched.clock,
    )
    with closing(seen):

        def found() -> bool:
            seen.look([])
            return seen.due()

        watched.clock.now += WORK_SECONDS
        wait_for(found, "both ranks")
        for _ in range(round(2 * LIMIT / WORK_SECONDS)):
            for pid, what in does.items():
                watched.does(pid, **what)
            seen.look_at_work()
            sentences += [seen.still.sentence] if seen.still else []
            watched.clock.now += WORK_SECONDS
    return sentences


RUNS = {"state": "R", "cpu": 5.0}


def test_a_rank_that_spins_while_another_waits_is_told(watched: Watched) -> None:
    first, *_, last = told(watched, {SPINS: RUNS})
    said = (
        r"its 2 ranks moved no data and took no memory for 1 min 45 s, and rank 1 did not run at "
        "all: "
        "the rest spins, or computes in place"
    )
    assert re.fullmatch(said, first)
    assert "for 1 min 55 s" in last


@pytest.mark.parametrize(
    "does",
    [
        {SPINS: RUNS | {"moved": 8}, WAITS: {}},
        {SPINS: RUNS, WAITS: {"wakes": 1}},
        {SPINS: RUNS, WAITS: {"cpu": 0.5}},
        {SPINS: RUNS, WAITS: RUNS},
        {SPINS: RUNS | {"faults": 1000}},
        {SPINS: RUNS, LAUNCHER: {"moved": 1 << 20}},
    ],
    ids=["bytes", "wakes", "threads", "both", "memory", "launcher"],
)
def test_ranks_that_may_work_are_not(
    does: Mapping[int, Mapping[str, float]], watched: Watched
) -> None:
    assert told(watched, does) == []


def test_ranks_that_all_sleep_beside_a_launcher_that_polls_are_told(watched: Watched) -> None:
    first, *_ = told(watched, {LAUNCHER: {"state": "R", "cpu": 1.0}})
    assert first.endswith("took no memory for 1 min 45 s, and ranks 0-1 did not run at all")


def test_a_rank_that_is_seen_at_several_places_works(watched: Watched) -> None:
    watched.taker = Looks("forward", "loss")
    assert told(watched, {SPINS: RUNS}) == []


RANKS = """
import os, signal, socket, subprocess, sys, time
from stagewatch.core.processes import die_with_parent
rank, here = os.environ.get("RANK"), socket.socketpair()
if rank is None:
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env=os.environ | {"RANK": str(number), "WORLD_SIZE": "2"},
            preexec_fn=die_with_parent,
        )
        for number in range(2)
    ]
    sys.exit(any([one.wait() for one in ranks]))
if "spins" in sys.argv:
    while rank == "0":
        pass
    here[0].recv(1)
signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))
worker = subprocess.Popen(["sleep", "600"], preexec_fn=die_with_parent if rank == "0" else None)
worker.wait()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A launcher of two ranks that keep no record."""
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    return script


def test_a_rank_that_spins_in_a_program_without_a_record_is_told_with_its_name(
    script: Path, record_dir: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare, "WORK_SECONDS", 0.5)
    process = children.start([sys.executable, str(script), "spins"], environ=clean_environ({}))
    lines: list[str] = []
    with closing(ranks.Ranks(record_dir, Procfs(), tell=lines.append, bare_seconds=3)) as seen:

        def told() -> bool:
            seen.look(process.pid)
            return bool(lines)

        wait_for(told, "what is told", 300)
    first, title, launcher, *at = lines[0].splitlines()
    assert re.match(r"its 2 ranks .*, and rank 1 did not run at all: the rest spins, ", first)
    assert title.startswith("PID") and " do_wait " in launcher and ", rank" not in launcher
    states = [re.search(r"^\d+, (rank \d) +(\w+) ", line).groups() for line in at]
    assert states == [("rank 0", "runs"), ("rank 1", "sleeps")]


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGKILL, r"(.*: )?rank 1 \(pid {}\) failed first, after .*: killed by SIGKILL .*"),
        (signal.SIGUSR1, r"no rank .* after .*\n  rank 1 \(pid {}\): it exited with status 3"),
    ],
    ids=["killed", "exited"],
)
def test_a_rank_without_a_record_that_dies_is_told_by_its_name(
    number: int, told: str, script: Path, record_dir: Path, children: Children
) -> None:
    """Its child, which inherits its variables and outlives it, is no rank."""
    launcher = children.start([sys.executable, str(script)], environ=clean_environ({}))
    with closing(ranks.Ranks(record_dir, Procfs())) as seen:

        def named() -> dict[str, int]:
            seen.look(launcher.pid)
            return {name: pid for (pid, _), name in seen._bare.names.items()}

        def worker() -> int:
            stats = Procfs().stats(seen._pids())
            return next((pid for pid, one in stats.items() if one.parent == rank), 0)

        wait_for(lambda: len(named()) == 2, "both ranks")
        before = named()
        rank = before["rank 1"]
        child = wait_for(lambda: named() and worker(), "its child")
        os.kill(rank, number)
        try:
            wait_for(
                lambda: named() and re.fullmatch(told.format(rank), seen.story(256)), "its end"
            )
            scan = seen._bare._scan
            wait_for(lambda: child in [one.pid for one in scan.ranks(())], "a look at its child")
            assert named() == before
        finally:
            os.kill(child, signal.SIGKILL)
