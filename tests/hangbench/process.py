"""One rank that plays its part of a shape.

    python NAME.py SHAPE DIRECTORY RANK WORLD GENERATION FIRST_STEP JOINS

DIRECTORY belongs to the job.  What the rank has to tell the player it appends to `events` there.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import stagewatch
from stagewatch.core.processes import die_with_parent
from tests.hangbench.actions import ACTIONS, Finish, Slowness
from tests.hangbench.device import Devices, usual
from tests.hangbench.lines import lines
from tests.hangbench.meeting import Board, Meeting, MetQueue
from tests.hangbench.queues import Queue, open_queue
from tests.hangbench.queues.place import Place
from tests.hangbench.shape import Entry, Shape, flat, load

COMMUNICATES = ("collective", "wait", "send", "recv", "put", "get", "ddp", "init_group")
_KNOWN = set(inspect.signature(stagewatch.collective).parameters)


class Rank:
    """The loop, and all that an action may ask of it."""

    def __init__(
        self, shape: Shape, directory: Path, rank: int, world: int, generation: int, step: int
    ) -> None:
        self.shape, self.directory, self.rank = shape, directory, rank
        self.world, self.generation, self.step = world, generation, step
        self.instrumented = shape.backend != "bare"
        self._devices = Devices(directory)
        self._lines = lines(shape)
        self.slowness: dict[str, Slowness] = {}
        """By kind of work: `sleep`, `compute`, `io`."""
        self.kept: dict[str, Any] = {}
        """What actions keep from one step to the next, such as a loader of data."""
        self.queues: dict[str, Queue] = {}
        """Those that this rank uses, by name."""
        self.pending: list[tuple[str, str, int]] = []
        self.skipping = 0
        self._entry = ""
        """Its place in the programme."""
        self._formed = False
        self._first = True
        """Whether this is the first thread, whose course the player watches."""
        self._open: tuple[tuple[str, str], contextlib.AbstractContextManager[Any]] | None = None
        self._begin()

    def run(self, joins: bool) -> None:
        """Play the programme; a rank that `joins` a job that goes on does not meet it in init."""
        self._init(alone=joins)
        if any(entry.ranks is None or self.rank in entry.ranks for entry in self.shape.beside):
            threading.Thread(target=self._beside, name="beside", daemon=True).start()
        try:
            while not self.shape.steps or self.step < self.shape.steps:
                self.step += 1
                self.board.mark(self.rank, self.step)
                self._play(self.shape.step)
        except Finish:
            self._close_stage()
        self._play(self.shape.final)
        self.tell("finished")

    def _beside(self) -> None:
        """Play, in a thread, what goes on beside the steps."""
        other = copy.copy(self)
        other._open, other.kept, other._first = None, {}, False
        other.queues = self._open_queues(self.shape.beside)
        while True:
            other.step = self.step
            other._play(self.shape.beside)

    def duration(self, seconds: float, kind: str) -> float:
        """Seconds with jitter, and slower where it has been told to be slow."""
        noise = random.Random(f"{self.shape.seed} {self.rank} {self.step} {self._entry}")
        jitter = min(max(noise.gauss(1, self.shape.jitter), 0.5), 2.0)
        slowness = self.slowness.get(kind)
        slow = slowness is not None and slowness.applies(self.step, self._turn(slowness.rotate))
        return seconds * jitter * (slowness.factor if slowness and slow else 1.0)

    def drawn(self, what: str, hold: int = 1, alike: bool = False) -> random.Random:
        """Random numbers of this rank (or `alike` of all) and entry, the same ones for `hold`
        steps."""
        since = self.step // hold
        whose = "all" if alike else self.rank
        return random.Random(f"{self.shape.seed} {whose} {what} {self._entry} {since}")

    def _turn(self, rotate: int) -> bool:
        """Whether this rank has its turn, which all ranks agree on."""
        turn = random.Random(f"{self.shape.seed} turn {self.step // max(1, rotate)}")
        return turn.randrange(self.world) == self.rank

    def mark(self, step: int | None = None) -> None:
        """Mark progress."""
        if self.instrumented:
            stagewatch.heartbeat(step)

    def tell(self, what: str, **more: Any) -> None:
        """Tell the player."""
        line = json.dumps({"what": what, "rank": self.rank, "time": time.time()} | more)
        file = os.open(self.directory / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{line}\n".encode())
        os.close(file)

    def stage(self, name: str, substage: str = "") -> contextlib.AbstractContextManager[Any]:
        """A declared stage, where there is a client."""
        if not self.instrumented:
            return contextlib.nullcontext()
        return stagewatch.stage(name, self.step or None, substage=substage)

    def peer(self, peer: int | str) -> int:
        """A process by its number, or as "next" or "previous"."""
        if isinstance(peer, int):
            return peer
        return (self.rank + {"next": 1, "previous": -1}[peer]) % self.world

    @contextlib.contextmanager
    def reported(self, group: str, **facts: Any) -> Iterator[None]:
        """Around communication: the client is told in the way that the shape says."""
        self.board.inside(self.rank, True)
        with self._told(group, facts):
            yield
        self.board.inside(self.rank, False)

    def _told(self, group: str, facts: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
        if self.shape.backend != "client":
            return contextlib.nullcontext()
        if group == "p2p":
            label = group
            facts["peer"] = self.shape.role_of(facts["peer"], self.world)[1]
            if self.shape.report == "call" or "peer" not in _KNOWN:
                return contextlib.nullcontext()
        else:
            label, members = self.shape.group_of(group, self.rank, self.world)
            facts["size"] = len(members)
        if self.shape.report == "call":
            facts = {}
        told = stagewatch.collective(
            label, **{name: fact for name, fact in facts.items() if name in _KNOWN}
        )
        if self.shape.report == "with" and hasattr(told, "__enter__"):
            entered: contextlib.AbstractContextManager[Any] = told
            return entered
        return contextlib.nullcontext()

    def form(self) -> None:
        """Meet all processes of this generation."""
        self.meeting.begin()
        self._formed = True

    def reform(
        self, world: int, fresh: set[int], gone: list[int], rejoin: bool, on_node: int | None
    ) -> None:
        """Go over to the next generation, or end."""
        self._close_stage()
        self.meeting.leave(gone)
        self.meeting.close()
        for queue in self.queues.values():
            queue.close()
        stays = [rank for rank in range(min(world, self.world)) if rank not in fresh]
        new = [rank for rank in range(world) if rank not in stays]
        if self.rank == stays[0]:
            self.tell(
                "start",
                ranks=new,
                world=world,
                generation=self.generation + 1,
                step=self.step,
                on_node=on_node,
                joins=not rejoin,
            )
        if self.rank not in stays:
            self.tell("finished")
            sys.exit(0)
        self.world, self.generation = world, self.generation + 1
        self._begin(identify=rejoin)
        if rejoin:
            self._init()
        raise _NextStep

    def _begin(self, identify: bool = True) -> None:
        self.board = Board(self.directory, self.generation)
        if identify and self.instrumented:
            role, rank, size = self.shape.role_of(self.rank, self.world)
            stagewatch.init(
                role, job_id=self.shape.name, rank=rank, world_size=size, framework="hangbench"
            )
        torch = self.shape.backend == "torch"
        if torch:
            from tests.hangbench.gloo import Gloo as Kind
        else:
            Kind = Meeting  # type: ignore[assignment, misc]
        self.meeting: Any = Kind(
            self.shape, self.directory, self.board, self.rank, self.world, self.generation
        )
        self._formed = False
        self.queues = self._open_queues(self.shape.init + self.shape.step + self.shape.final)

    def _open_queues(self, entries: Iterable[Entry]) -> dict[str, Queue]:
        """Those that this rank uses in some entries."""
        mine = [one for one in flat(entries) if one.ranks is None or self.rank in one.ranks]
        return {
            name: self._open_queue(name)
            for name in self.shape.queues
            if any(entry.arguments.get("queue") == name for entry in mine)
        }

    def _open_queue(self, name: str) -> Queue:
        told = self.shape.queues[name]
        if told.via == "rendezvous":
            return MetQueue(self.meeting.aside, name, told.depth)
        return open_queue(told.via, Place(self.directory, self.generation, told.index, told.depth))

    def _init(self, alone: bool = False) -> None:
        explicit = any(entry.do == "init_group" for entry in self.shape.init)
        if self.shape.backend == "torch" and (alone or not explicit):
            self.form()
        self._play([e for e in self.shape.init if not (alone and e.do in COMMUNICATES)])

    def _play(self, entries: Iterable[Entry]) -> None:
        with contextlib.suppress(_NextStep):
            self._play_all(entries, "")
        self._close_stage()

    def play_within(self, entries: Iterable[Entry]) -> None:
        """Play entries that are part of the one that is being played."""
        within = self._entry
        self._play_all(entries, f"{within}.")
        self._entry, self.skipping = within, 0

    def _play_all(self, entries: Iterable[Entry], prefix: str) -> None:
        self.skipping = 0
        for number, entry in enumerate(entries):
            self._entry = f"{prefix}{number}"
            if self.skipping:
                self.skipping -= 1
            elif entry.applies(self.rank, self.step):
                self._do(entry)

    def _do(self, entry: Entry) -> None:
        wanted = entry.stage, entry.substage
        if self._open is None or self._open[0] != wanted:
            self._close_stage()
            if entry.stage:
                stage: Any = self.stage(*wanted)
                stage.__enter__()
                self._open = wanted, stage
        if self._first:
            self.board.mark(self.rank, self.step)
            device = entry.device or usual(entry.do, entry.stage, self.step)
            self._devices.does(self.rank, device)
        if entry.trigger:
            self.tell("trigger", step=self.step)
        try:
            self._lines[id(entry)](ACTIONS[entry.do], self, entry.arguments)
        except Exception as error:
            opened, self._open = self._open, None
            if opened:
                opened[1].__exit__(
                    *((None,) * 3 if isinstance(error, (Finish, _NextStep)) else sys.exc_info())
                )
            raise

    def _close_stage(self) -> None:
        opened, self._open = self._open, None
        if opened:
            opened[1].__exit__(None, None, None)


class _NextStep(Exception):
    """The rest of the step is left out."""


def main() -> None:
    """Play."""
    die_with_parent()
    file, directory, rank, world, generation, step, joins = sys.argv[1:]
    me = Rank(load(Path(file)), Path(directory), int(rank), int(world), int(generation), int(step))
    me.run(joins=joins == "joins")
