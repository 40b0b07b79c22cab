"""Whether ranks are at work, by real processes that are, and that only look busy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples
from stagewatch.ranks.held_sockets import RankSockets
from stagewatch.ranks.records import parse
from stagewatch.ranks.work import (
    AT_WORK,
    COMPUTING,
    STILL,
    TRICKLE_BYTES_PER_SECOND,
    WINDOW_SECONDS,
    WorkCollector,
)
from tests.fake_clock import Clock
from tests.fakes.open_files import OpenFiles
from tests.ranks.fakes import FakeRanks, Program, families, family_io, program

PROC = Path("/proc")
RANK = """
import os, socket, subprocess, sys, time
def busy(seconds, work):
    end = time.process_time() + float(seconds)
    while time.process_time() < end:
        work()
def spin(seconds):
    busy(seconds, lambda: sum(range(1000)))
def compute(seconds):
    old = bytearray(1 << 22)
    busy(seconds, lambda: bytes(old))  # malloc maps each copy of that size anew
def write(size):
    open("/dev/null", "wb", buffering=0).write(bytes(int(size)))
def send(port, size):
    held.append(socket.create_connection(("127.0.0.1", int(port))))
    held[-1].sendall(bytes(int(size)))
def child():
    held.append(subprocess.Popen([sys.executable, "-uc", program],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
def tell(*words):
    held[-1].stdin.write(" ".join(words) + "\\n"); held[-1].stdin.flush()
    held[-1].stdout.readline()
held = []
program = PROGRAM
for line in sys.stdin:
    name, *arguments = line.split()
    globals()[name](*arguments)
    print("done")
"""
RANK = RANK.replace("PROGRAM", repr(RANK.replace("PROGRAM", "None")))
KEY = ("7", "train", "0")
ENOUGH_CPU = COMPUTING * WINDOW_SECONDS * 1.2
ENOUGH_BYTES = int(TRICKLE_BYTES_PER_SECOND * WINDOW_SECONDS * 1.2)


class Watched:
    """One rank, and the collector that looks at it every five seconds of a made-up clock."""

    def __init__(self, rank: Program, ranks: FakeRanks, collector: WorkCollector, clock: Clock):
        self.rank = rank
        self.ranks = ranks
        self.collector = collector
        self._clock = clock
        self.look()

    def look(self, seconds: float = 5.0) -> Samples:
        """What is shown some seconds later."""
        self._clock.now += seconds
        return self.collector.collect()

    def after(self, *lines: str) -> set[str]:
        """By what the rank is at work once it has done this."""
        for line in lines:
            assert self.rank.ask(line) == "done"
        return self.by(self.look())

    def by(self, found: Samples) -> set[str]:
        """By what the rank is at work."""
        return {labels[3] for labels in found.families.get(AT_WORK, {}) if labels[:3] == KEY}


@pytest.fixture
def watched(clock: Clock) -> Iterator[Watched]:
    ranks = FakeRanks()
    with (
        closing(RankSockets(families(ranks), PROC, OpenFiles(PROC), clock=clock)) as sockets,
        program(RANK) as rank,
    ):
        collector = WorkCollector(ranks, family_io(ranks), sockets, clock=clock)
        with pytest.raises(NoData):
            collector.collect()
        assert rank.ask("spin 0") == "done"
        ranks.add(rank.pid, 0)
        yield Watched(rank, ranks, collector, clock)


def test_a_rank_that_moves_bytes_of_files_is_at_work_but_not_by_a_trickle(
    watched: Watched,
) -> None:
    assert watched.after("write 100000") == set()
    assert watched.after("write 100000") == set()
    assert watched.after(f"write {ENOUGH_BYTES}") == {"io"}


def test_a_rank_that_sends_is_at_work(watched: Watched) -> None:
    """Which `/proc/PID/io` does not count: it counts read(2) and write(2) of files."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        watched.rank.say(f"send {server.getsockname()[1]} {ENOUGH_BYTES}")
        connection, _ = server.accept()
        with connection:
            left = ENOUGH_BYTES
            while left:
                left -= len(connection.recv(left))
            assert watched.rank.hear() == "done"
            assert watched.by(watched.look()) == {"io"}


@pytest.mark.parametrize("what", [f"compute {ENOUGH_CPU}", f"write {ENOUGH_BYTES}"])
def test_children_at_work_are_told_as_such(what: str, watched: Watched) -> None:
    assert watched.after("child", "tell spin 0") <= {"children"}  # Python reads itself
    assert watched.by(watched.look(WINDOW_SECONDS)) == set()
    assert watched.after(f"tell {what}") == {"children"}
    assert watched.by(watched.look(WINDOW_SECONDS)) == set()
    assert watched.after(f"tell spin {ENOUGH_CPU}") == set()


def test_a_rank_without_a_record_is_still_until_it_works_or_starts_a_process(
    watched: Watched,
) -> None:
    assert watched.look().value(STILL, *KEY) == 5
    assert watched.after(f"spin {ENOUGH_CPU}") == set()
    assert watched.look().value(STILL, *KEY) == 15
    watched.after(f"write {ENOUGH_BYTES}")
    assert watched.look(WINDOW_SECONDS).value(STILL, *KEY) == WINDOW_SECONDS
    watched.after("child")
    still = watched.look(WINDOW_SECONDS).value(STILL, *KEY)
    assert still is not None
    assert still <= WINDOW_SECONDS


def test_stillness_begins_with_the_last_work_not_when_the_window_has_passed(
    watched: Watched,
) -> None:
    assert watched.after(f"write {ENOUGH_BYTES}") == {"io"}
    later = watched.look()
    assert watched.by(later) == {"io"}
    assert later.value(STILL, *KEY) == 5


def test_a_rank_with_a_record_tells_itself_how_long_it_is_still(
    watched: Watched, raw: bytes
) -> None:
    (rank,) = watched.ranks.ranks
    watched.ranks.ranks = [replace(rank, record=parse(raw))]
    assert watched.look().value(STILL, *KEY) is None
