"""Whether ranks are at work: one that moves bytes is real, the others are files of `/proc`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples
from stagewatch.host.procfs import TICKS_PER_SECOND
from stagewatch.ranks import work
from stagewatch.ranks.held_sockets import RankSockets
from stagewatch.ranks.records import parse
from stagewatch.ranks.wait_class import BUSY_PAGE_FAULTS
from tests.fake_clock import Clock
from tests.fakes.open_files import OpenFiles
from tests.ranks.fakes import FakeRanks, families, family_io, program

RANK = """
import socket, sys
for line in sys.stdin:
    what, *where, size = line.split()
    if what == "write":
        open("/dev/null", "wb", buffering=0).write(bytes(int(size)))
    else:
        held = socket.create_connection(("127.0.0.1", int(where[0])))
        held.sendall(bytes(int(size)))
    print("done")
"""
KEY = ("7", "train", "0")
ENOUGH_CPU = work.COMPUTING * work.WINDOW_SECONDS * 1.2
ENOUGH_FAULTS = int(2 * BUSY_PAGE_FAULTS * ENOUGH_CPU)
ENOUGH_BYTES = int(work.TRICKLE_BYTES_PER_SECOND * work.WINDOW_SECONDS * 1.2)


class Watched:
    """The ranks of a process file system, looked at every five seconds of a made-up clock."""

    def __init__(self, proc: Path, sockets: RankSockets, ranks: FakeRanks, clock: Clock) -> None:
        self.proc = proc
        self.ranks = ranks
        self.stillness = work.Stillness(clock)
        self.collector = work.WorkCollector(
            ranks, family_io(ranks, proc), sockets, stillness=self.stillness, clock=clock
        )
        self._clock = clock
        self._done: dict[int, list[float]] = {}

    def look(self, seconds: float = 5.0) -> Samples:
        """What is shown some seconds later."""
        self._clock.now += seconds
        return self.collector.collect()

    def by(self, found: Samples | None = None) -> set[str]:
        """By what the rank is at work."""
        return {labels[3] for labels in (found or self.look()).families.get(work.AT_WORK, {})}

    def does(
        self, pid: int, parent: int = 1, *, cpu: float = 0.0, faults: int = 0, moved: int = 0
    ) -> None:
        """What a made-up process has done since the last look."""
        before = self._done.get(pid, [0, 0, 0])
        sums = self._done[pid] = [before[0] + cpu, before[1] + faults, before[2] + moved]
        directory = self.proc / str(pid)
        directory.mkdir(exist_ok=True)
        ticks = round(sums[0] * TICKS_PER_SECOND)
        (directory / "stat").write_text(
            f"{pid} (x) S {parent} 1 1 0 0 0 {sums[1]} 0 0 0 {ticks} 0 0 0 20 0 1 0 9 0 0"
        )
        (directory / "io").write_text(
            f"rchar: {sums[2]}\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n"
        )


@pytest.fixture
def watched(tmp_path: Path, clock: Clock) -> Iterator[Watched]:
    """One made-up rank."""
    ranks = FakeRanks()
    look = families(ranks, tmp_path)
    with closing(RankSockets(look, tmp_path, OpenFiles(tmp_path), clock=clock)) as sockets:
        watched = Watched(tmp_path, sockets, ranks, clock)
        with pytest.raises(NoData):
            watched.collector.collect()
        ranks.add(10, 0)
        watched.does(10)
        watched.look()
        yield watched


def test_a_rank_that_moves_bytes_is_at_work_but_not_by_a_trickle(clock: Clock) -> None:
    """`/proc/PID/io` counts files, but not what is sent."""
    proc, ranks = Path("/proc"), FakeRanks()
    with (
        closing(RankSockets(families(ranks), proc, OpenFiles(proc), clock=clock)) as sockets,
        program(RANK) as rank,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        assert rank.ask("write 0") == "done"
        ranks.add(rank.pid, 0)
        watched = Watched(proc, sockets, ranks, clock)
        watched.look()
        rank.ask("write 100000")
        assert watched.by() == set()
        rank.ask(f"write {ENOUGH_BYTES}")
        assert watched.by() == {"io"}
        assert watched.by(watched.look(work.WINDOW_SECONDS)) == set()
        rank.say(f"send {server.getsockname()[1]} {ENOUGH_BYTES}")
        connection, _ = server.accept()
        with connection:
            left = ENOUGH_BYTES
            while left:
                left -= len(connection.recv(left))
            assert rank.hear() == "done"
            assert watched.by() == {"io"}


def test_who_takes_new_memory_computes_and_who_only_spins_does_not(watched: Watched) -> None:
    watched.does(10, cpu=ENOUGH_CPU)
    assert watched.by() == set()
    watched.does(10, cpu=ENOUGH_CPU, faults=2 * ENOUGH_FAULTS)
    assert watched.by() == {"compute"}


@pytest.mark.parametrize("what", ["computes", "moves"])
def test_children_at_work_are_told_as_such(what: str, watched: Watched) -> None:
    watched.does(11, parent=10)
    assert watched.by() == set()
    if what == "computes":
        watched.does(11, parent=10, cpu=ENOUGH_CPU, faults=ENOUGH_FAULTS)
    else:
        watched.does(11, parent=10, moved=ENOUGH_BYTES)
    assert watched.by() == {"children"}
    assert watched.by(watched.look(work.WINDOW_SECONDS)) == set()


def test_a_trickle_is_no_work_but_breaks_the_silence(watched: Watched, clock: Clock) -> None:
    watched.look()
    assert clock.now - watched.stillness.silent[KEY] == 5
    watched.does(11, parent=10)
    watched.look()
    watched.does(11, parent=10, moved=1)
    assert watched.by() == set()
    assert (clock.now - watched.stillness.silent[KEY], watched.stillness.seconds(KEY)) == (0, 5)


def test_a_rank_that_tells_nothing_is_still_until_it_works_or_starts_a_process(
    watched: Watched, raw: bytes
) -> None:
    assert watched.look().value(work.STILL, *KEY) == 5
    watched.does(10, cpu=ENOUGH_CPU)
    assert watched.look().value(work.STILL, *KEY) == 10
    watched.does(10, moved=ENOUGH_BYTES)
    assert watched.look().value(work.STILL, *KEY) == 0
    assert watched.look().value(work.STILL, *KEY) == 5, (
        "since the last work, not since the window ended"
    )
    watched.does(11, parent=10)
    assert watched.look(work.WINDOW_SECONDS).value(work.STILL, *KEY) == 0
    record = parse(raw)
    watched.ranks.ranks = [
        replace(watched.ranks.ranks[0], record=replace(record, lanes=(), groups={}))
    ]
    assert watched.look().value(work.STILL, *KEY) == 5, "its record has no mark yet"
    watched.ranks.ranks = [replace(watched.ranks.ranks[0], record=record)]
    assert watched.look().value(work.STILL, *KEY) is None, "its record tells"
