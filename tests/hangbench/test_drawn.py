"""Random shapes are well formed, and what they promise follows from their programmes.

`Walk` goes through a programme without processes or time: what blocks in the end, and where.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.hangbench.__main__ import main
from tests.hangbench.drawn import HOWS, TOPOLOGIES, draw, write
from tests.hangbench.shape import Entry, Shape, load

SEEDS = range(200)
BEYOND = 30
"""Steps after the trigger by which a job has gone on."""


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> list[Shape]:
    files = write(SEEDS[0], len(SEEDS), tmp_path_factory.mktemp("drawn"))
    return [load(file) for file in files]


class Walk:
    """The programme of a shape, as far as its ranks get."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        triggers = [entry for entry in shape.entries if entry.trigger]
        self.trigger = max(max(entry.at, entry.first) for entry in triggers)
        if any(entry.trigger for entry in shape.final):
            self.trigger = shape.steps
        self.last = shape.steps or self.trigger + BEYOND
        self.steps: Counter[int] = Counter()
        self.entered: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.messages: Counter[tuple[int, int]] = Counter()
        self.taken: Counter[tuple[int, int]] = Counter()
        self.waiting: Counter[str] = Counter()
        self.at_fault: set[int] = set()
        """Those that hang, are gone, or deviate."""
        self.stuck: set[int] = set()
        """Those that do nothing, or are gone."""
        self.lost: set[int] = set()
        self.done: set[int] = set()
        ranks = {rank: self._rank(rank) for rank in range(shape.world)}
        waits: dict[int, Callable[[], bool]] = dict.fromkeys(ranks, _at_once)
        moved = True
        while moved:
            moved = False
            for rank, programme in ranks.items():
                while rank not in self.done | self.stuck and waits[rank]():
                    moved = True
                    following = next(programme, None)
                    if following is None:
                        if rank not in self.stuck:
                            self.done.add(rank)
                        break
                    waits[rank] = following

    def _rank(self, rank: int) -> Iterator[Callable[[], bool]]:
        shape = self.shape
        yield from self._play(shape.init, rank, 0)
        for step in range(1, self.last + 1):
            self.steps[rank] = step
            if (yield from self._play(shape.step, rank, step)):
                break
        else:
            if not shape.steps:
                return
        yield from self._play(shape.final, rank, self.steps[rank])

    def _play(
        self, entries: tuple[Entry, ...], rank: int, step: int
    ) -> Generator[Callable[[], bool], None, bool]:
        pending: list[Callable[[], bool]] = []
        skipping = 0
        for entry in entries:
            if skipping:
                skipping -= 1
                continue
            if not entry.applies(rank, step):
                continue
            do, more = entry.do, entry.arguments
            if entry.trigger and not self.shape.healthy and not more.get("lost"):
                self.at_fault |= set() if do == "kill_node" else {rank}
            if do == "finish":
                return True
            if do == "skip":
                skipping = 1
            elif do == "kill_node":
                gone = {r for r in range(self.shape.world) if self.shape.node_of(r) == more["node"]}
                self.at_fault |= gone
                self.stuck |= gone
                yield _at_once
            elif do in ("hang", "livelock", "exit", "raise", "signal") or (
                more.get("fault") == "hang" or more.get("seconds", 0) > 1000
            ):
                self.stuck.add(rank)
                yield _never
            elif do == "init_group":
                yield self._meet("begin", rank, "", tuple(range(self.shape.world)))
            elif do in ("send", "recv"):
                peer = (rank + (1 if more["peer"] == "next" else -1)) % self.shape.world
                yield from self._message(do, rank, peer)
            elif do == "put":
                queue, depth = more["queue"], more["depth"]
                yield partial(self._has_room, queue, depth)
                self.waiting[queue] += 1
            elif do == "get":
                queue = more["queue"]
                yield partial(self._has_some, queue)
                self.waiting[queue] -= 1
            elif do == "wait":
                yield pending.pop(0)
            elif do == "collective":
                name = more.get("group", "world")
                label, members = self.shape.group_of(name, rank, self.shape.world)
                tag = f"{more.get('op', 'all_reduce')} {more.get('elements', 1000)}"
                key = f"{label} {members}"
                complete = self._meet(key, rank, tag, members)
                if more.get("lost"):
                    self.lost.add(rank)
                    complete = _never
                if more.get("async"):
                    pending.append(complete)
                else:
                    yield complete
        return False

    def _meet(self, key: str, rank: int, tag: str, members: tuple[int, ...]) -> Callable[[], bool]:
        self.entered[key, rank].append(tag)
        number = len(self.entered[key, rank])

        def complete() -> bool:
            for member in members:
                tags = self.entered[key, member]
                if len(tags) < number or (len(tags) == number and tags[-1] != tag):
                    return False
            return True

        return complete

    def _has_room(self, queue: str, depth: int) -> bool:
        return self.waiting[queue] < depth

    def _has_some(self, queue: str) -> bool:
        return self.waiting[queue] > 0

    def _message(self, do: str, rank: int, peer: int) -> Iterator[Callable[[], bool]]:
        if do == "send":
            number = self.messages[rank, peer]
            yield lambda: self.taken[rank, peer] >= number
            self.messages[rank, peer] += 1
        else:
            number = self.taken[peer, rank]
            yield lambda: self.messages[peer, rank] > number
            self.taken[peer, rank] += 1


def _at_once() -> bool:
    return True


def _never() -> bool:
    return False


def test_random_shapes_are_well_formed_and_the_same_for_a_seed(shapes: list[Shape]) -> None:
    assert [draw(seed) for seed in SEEDS] == [shape.file.read_text() for shape in shapes]
    assert 0.25 < [shape.healthy for shape in shapes].count(True) / len(shapes) < 0.42
    assert 0.1 < [shape.backend for shape in shapes].count("torch") / len(shapes) < 0.3
    assert all(2 <= shape.world <= 12 for shape in shapes)


def test_all_kinds_occur(shapes: list[Shape]) -> None:
    text = "".join(shape.file.read_text() for shape in shapes)
    for topology in TOPOLOGIES.values():
        assert f"drawn at random: {topology}, " in text
    more = text + "".join(map(draw, range(len(SEEDS), 3 * len(SEEDS))))
    for how in HOWS:
        assert f"hang ({how})" in more or f"hangs ({how})" in more
    faults = {"init", "collective", "compute", "io", "process", "lock", "livelock", "end", "node"}
    assert faults == {shape.kind for shape in shapes if not shape.healthy}
    oddities = {"pause", "eval", "checkpoint", "compile", "data", "elastic", "suspend", "end"}
    assert oddities | {"service", "variance"} == {shape.kind for shape in shapes if shape.healthy}
    assert {shape.wait for shape in shapes} == {"block", "poll", "spin"}
    assert {shape.report for shape in shapes} == {"with", "call"}
    several = [shape for shape in shapes if len(shape.expect.sets[0]) > 1 and shape.expect.node < 0]
    assert len(several) > 5


def test_a_fault_stops_everybody_and_only_the_culprits_are_elsewhere(shapes: list[Shape]) -> None:
    for shape in shapes:
        if shape.healthy:
            continue
        walk = Walk(shape)
        assert not walk.done, shape.name
        assert max(walk.steps.values(), default=0) <= walk.trigger + 2 * shape.world, shape.name
        assert walk.at_fault in shape.expect.sets, shape.name
        assert walk.stuck <= walk.at_fault, shape.name
        assert len(walk.lost) == (shape.world if not walk.at_fault else 0), shape.name


def test_a_healthy_shape_goes_on(shapes: list[Shape]) -> None:
    for shape in shapes:
        if shape.healthy and not shape.uses("reform"):  # rehearsed instead
            assert Walk(shape).done == set(range(shape.world)), shape.name


def test_shapes_are_drawn_into_a_folder(tmp_path: Path) -> None:
    arguments = ["draw", "--seed", "7", "--count", "2", "--into", str(tmp_path / "drawn")]
    assert main(arguments) == 0
    names = sorted(file.name for file in (tmp_path / "drawn").iterdir())
    assert names == ["drawn_0007.toml", "drawn_0008.toml"]
