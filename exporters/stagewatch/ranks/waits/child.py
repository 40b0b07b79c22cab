"""The child that looks at what processes wait for; `look` is its other end.

It looks twice, some seconds apart, and reports the waits that lasted.  The first look follows the
waits of the requested processes, and of the processes that they wait for, three steps at most; the
second look is at the same threads.  The child has the lowest priority and little CPU time, memory
and time; it reports what it did not look at.  Processes may forge anything that they show.

It speaks lines of JSON, uses the standard library only, and ends when its input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from stagewatch.core.errors import SourceError
from stagewatch.core.processes import die_with_parent
from stagewatch.core.words import printable
from stagewatch.host.procfs import ProcessStat, Procfs
from stagewatch.ranks.waits.edges import Edges
from stagewatch.ranks.waits.model import (
    Connection,
    Kind,
    Mode,
    Process,
    State,
    Wait,
    Waiting,
    as_json,
)
from stagewatch.ranks.waits.naming import Name, name_of
from stagewatch.ranks.waits.system_calls import Call, Role, calls
from stagewatch.ranks.waits.threads import Thread, Threads, look

T = TypeVar("T")

ANSWER_SECONDS = 20.0
"""Time for the whole answer, including the time between the looks."""
CPU_SECONDS = 5.0
"""CPU time of one answer."""
PROCESS_CPU_SECONDS = 0.5
"""CPU time of one answer for a single process."""
LIFE_CPU_SECONDS = 120
"""CPU time of all answers."""
MEMORY_BYTES = 384 << 20
MAX_STEPS = 3
"""The most steps from a requested process to another one."""
MAX_PROCESSES = 256
MAX_ALL_THREADS = 8192
MAX_CONNECTIONS = 256
"""The most requested connections."""
UNHURRIED_SECONDS = 2.0
"""How long one process may take to answer."""
SILENT = "anything of it: it does not answer, as one that is stuck in exec on a silent mount"
BUSY = 0.05
"""A thread that returns to the same call only waits if it uses less than this share of a core."""
BUSY_PROCESS = 0.3
"""A process only waits if it uses less than so many cores."""


class _Unhurried(Procfs):
    """Waits longer for an answer: this process is the last to get a core."""

    def patiently(
        self, pid: int, read: Callable[[], T], seconds: float = UNHURRIED_SECONDS
    ) -> T | None:
        return super().patiently(pid, read, max(seconds, UNHURRIED_SECONDS))

    def each(self, reads: Sequence[tuple[int, Callable[[], T]]]) -> list[T | None]:
        answers = super().each(reads)
        for place, (pid, ask) in enumerate(reads):
            if answers[place] is None and self.is_there(pid):
                answers[place] = self.patiently(pid, ask)
        return answers

    def is_there(self, pid: int) -> bool:
        """Whether there is a process of this number, in any state."""
        return (self.root / str(pid)).exists()


@dataclass(slots=True)
class _Subject:
    """A process and its waits at the first look."""

    stat: ProcessStat
    steps: int
    wanted: int
    """The thread that counts."""
    threads: Threads
    waits: dict[int, Wait] = field(default_factory=dict)
    name: Name = field(default_factory=Name)


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the requested processes wait for, as JSON."""
    return as_json(_Look(_Unhurried(), calls(os.uname().machine), question).take())


class _Look:
    """The making of one answer, from the first look to the waits that lasted."""

    def __init__(
        self, proc: _Unhurried, table: Mapping[int, Call], question: Mapping[str, Any]
    ) -> None:
        self._proc = proc
        self._table = table
        self._apart: float = question["apart"]
        self._end = time.monotonic() + ANSWER_SECONDS - self._apart
        self._cpu_end = time.process_time() + CPU_SECONDS
        self._left_out: list[str] = []
        self._processes = proc.stats(proc.pids())
        wanted = {pid: thread for pid, start, thread in question["targets"] if self._is(pid, start)}
        self._edges = Edges(proc, self._processes, list(wanted), self._has_time)
        self._subjects: dict[int, _Subject] = {}
        self._wanted = wanted
        self._asked = [target[:2] for target in question["targets"]]
        self._connections: list[list[str]] = question["connections"]
        self._connected: list[int] = question["connected"]

    def take(self) -> Waiting:
        """The waits that lasted over two looks."""
        try:
            connections = self._held()
            owners = {pid for one in connections for pid in one.owners}
            self._follow({**dict.fromkeys(sorted(owners), 0), **self._wanted})
            began = time.monotonic()
            for pid, subject in self._subjects.items():
                subject.name = self._name(pid, subject)
            awaited = self._subjects.keys() - self._wanted.keys() - owners
            connections += tuple(self._to_other_nodes(sorted(awaited)))
            time.sleep(max(0.0, self._apart - (time.monotonic() - began)))
            return self._lasted(connections, began)
        finally:
            self._edges.close()

    def _is(self, pid: int, start: int) -> bool:
        stat = self._processes.get(pid)
        return stat is not None and start in (0, stat.start_ticks)

    def _has_time(self) -> bool:
        return time.monotonic() < self._end and time.process_time() < self._cpu_end

    def _held(self) -> tuple[Connection, ...]:
        """The requested connections with their holders here."""
        found: list[Connection] = []
        for local, remote in self._connections[:MAX_CONNECTIONS]:
            if self._has_time():
                found += self._edges.tcp.held(local, remote)
        return (*found, *self._to_other_nodes(set(self._connected) & self._wanted.keys()))

    def _to_other_nodes(self, pids: Iterable[int]) -> Iterator[Connection]:
        for pid in pids:
            if self._has_time():
                with contextlib.suppress(SourceError):
                    yield from self._edges.tcp.of(pid)

    def _follow(self, first: Mapping[int, int]) -> None:
        """Look at these processes, and step by step at those that they wait for."""
        frontier: Iterable[int] = list(first)
        for steps in range(MAX_STEPS + 1):
            following: dict[int, None] = {}
            for pid in frontier:
                if pid in self._subjects or pid not in self._processes:
                    continue
                if not self._has_room():
                    return
                subject = self._look_at(pid, steps, first.get(pid, 0))
                if subject is not None:
                    self._subjects[pid] = subject
                    waits = sorted(subject.waits.values(), key=lambda one: not one.outward)
                    following |= dict.fromkeys(one for wait in waits for one in wait.targets)
            frontier = following

    def _has_room(self) -> bool:
        count = sum(len(subject.threads.threads) for subject in self._subjects.values())
        if not self._has_time():
            why = "there was no time for more"
        elif len(self._subjects) >= MAX_PROCESSES or count >= MAX_ALL_THREADS:
            why = f"more than {MAX_PROCESSES} processes or {MAX_ALL_THREADS:,} threads"
        else:
            return True
        self._left_out.append(f"not everybody that is waited for was looked at: {why}")
        return False

    def _look_at(self, pid: int, steps: int, thread: int) -> _Subject | None:
        """A process with the waits of its threads; `None` if it has just ended."""
        task = self._proc.task_named(pid, thread) if thread else None
        threads = self._threads(pid, (task,) if task else ())
        if threads is None:
            threads = Threads((), (SILENT,))
        subject = _Subject(self._processes[pid], steps, task or pid, threads)
        end = time.process_time() + PROCESS_CPU_SECONDS
        for one in threads.threads:
            if not self._has_time() or time.process_time() > end:
                self._left_out.append(f"not every thread of pid {pid} was looked at: no time")
                break
            wait = self._edges.wait(pid, one)
            if wait is not None:
                subject.waits[one.task] = wait
        return subject

    def _name(self, pid: int, subject: _Subject) -> Name:
        return name_of(self._proc, pid, subject.stat.session) if self._has_time() else Name()

    def _threads(self, pid: int, wanted: Sequence[int]) -> Threads | None:
        read = partial(look, str(self._proc.root), pid, self._table, wanted)
        return self._proc.patiently(pid, read)

    def _lasted(self, connections: tuple[Connection, ...], began: float) -> Waiting:
        """The second look, and the waits that are the same in both."""
        again = self._proc.stats(self._subjects)
        processes: dict[int, Process] = {}
        waits: list[Wait] = []
        for pid, subject in self._subjects.items():
            now = self._threads(pid, (subject.wanted,))
            seconds = time.monotonic() - began
            stat = again.get(pid)
            if stat is None and self._proc.is_there(pid):
                now, stat = None, subject.stat
                subject.threads = replace(subject.threads, lacking=(SILENT,))
            ended = stat is None or stat.start_ticks != subject.stat.start_ticks
            mine = {} if ended or now is None else _same(subject, now, seconds)
            if any(wait.mode is Mode.ANYBODY for wait in mine.values()):
                mine = {task: _request(wait) for task, wait in mine.items()}
            cores = 0.0 if stat is None or ended else _cpu(stat, subject.stat) / seconds
            state = _state(subject, stat, ended, now, mine, cores)
            processes[pid] = self._process(pid, subject, state, cores)
            if state is not State.STOPPED:
                waits += _folded(mine.values(), subject.wanted)
        for pid, start in self._asked:
            if pid not in processes:
                processes[pid] = self._not_seen(pid, start)
        return Waiting(
            processes,
            tuple(waits),
            connections,
            time.monotonic() - began,
            (*self._left_out, *self._edges.holders.left_out()),
        )

    def _not_seen(self, pid: int, start: int) -> Process:
        """A requested process that does not answer, or has ended."""
        if pid in self._wanted:
            return Process(pid, start, State.UNKNOWN, "", lacking=("anything of it: no time",))
        if pid not in self._processes and self._proc.is_there(pid):
            return Process(pid, start, State.UNKNOWN, "", lacking=(SILENT,))
        return Process(pid, start, State.GONE, "")

    def _process(self, pid: int, subject: _Subject, state: State, cores: float) -> Process:
        descriptors = self._edges.holders.lacking(pid)
        lacking = (*subject.threads.lacking, descriptors, *subject.name.lacking)
        if subject.stat.threads > len(subject.threads.threads) > 0:
            lacking += (f"its threads beyond the first {len(subject.threads.threads)}",)
        return Process(
            pid=pid,
            start=subject.stat.start_ticks,
            state=state,
            command=printable(subject.stat.command),
            arguments=subject.name.arguments,
            container=subject.name.container,
            job=subject.name.job,
            uid=self._proc.uid(pid),
            parent=max(0, subject.stat.parent),
            threads=subject.stat.threads,
            thread=subject.wanted,
            cores=round(max(0.0, cores), 3),
            steps=subject.steps,
            lacking=tuple(filter(None, lacking)),
        )


def _same(subject: _Subject, now: Threads, seconds: float) -> dict[int, Wait]:
    """By thread, the waits of a process that last at the second look."""
    before = {thread.task: thread for thread in subject.threads.threads}
    polled = {_polled(thread) for thread in now.threads}
    # Threads may take turns to wait for the events of one loop, as those of gRPC do.
    found = {
        task: wait
        for task, wait in subject.waits.items()
        if _polled(before[task]) in polled - {None}
    }
    for thread in now.threads:
        wait, then = subject.waits.get(thread.task), before.get(thread.task)
        if wait is None or then is None:
            continue
        used = (thread.cpu_seconds - then.cpu_seconds) / max(seconds, 1e-6)
        if thread.is_still(then):
            found[thread.task] = replace(wait, seconds_at_least=round(seconds, 3))
        elif thread.waits_like(then) and used < BUSY:
            found[thread.task] = wait
    return found


def _polled(thread: Thread) -> int | None:
    """The epoll instance that a thread waits for, by its descriptor."""
    epoll = thread.call is not None and thread.call.role is Role.EPOLL and thread.arguments
    return thread.arguments[0] if epoll else None


def _request(wait: Wait) -> Wait:
    """The wait of a server for a connected client, as one for the next request."""
    return replace(wait, mode=Mode.ANYBODY) if wait.serves else wait


def _folded(waits: Iterable[Wait], first: int) -> list[Wait]:
    """The waits, equal ones merged with their number of threads; the thread that counts first."""
    alike: dict[tuple[object, ...], Wait] = {}
    for wait in sorted(waits, key=lambda one: one.thread != first):
        what = (wait.kind, wait.call, wait.mode, wait.targets, wait.witness, wait.thread == first)
        same = alike.get(what)
        if same is None:
            alike[what] = wait
        else:
            most = max(same.seconds_at_least, wait.seconds_at_least)
            alike[what] = replace(same, alike=same.alike + 1, seconds_at_least=most)
    return list(alike.values())


def _cpu(now: ProcessStat, before: ProcessStat) -> float:
    used = now.user_seconds + now.system_seconds
    return used - before.user_seconds - before.system_seconds


def _state(
    subject: _Subject,
    stat: ProcessStat | None,
    ended: bool,
    now: Threads | None,
    waits: Mapping[int, Wait],
    cores: float,
) -> State:
    """The state of a process by the thread that counts; if that waits for the process itself or for
    anybody, by the other threads."""
    if stat is None or ended:
        return State.GONE
    letters = {thread.task: thread.state for thread in (now or subject.threads).threads}
    if stat.state in "ZX" and len(letters) <= 1:
        return State.ZOMBIE
    if stat.state in "Tt":
        return State.STOPPED
    if not subject.threads.threads or now is None:
        return State.UNKNOWN
    main = waits.get(subject.wanted)
    if main is None:
        runs = letters.get(subject.wanted) == "R" or cores >= BUSY
        return State.RUNNING if runs else State.UNKNOWN
    found = _of_wait(main)
    if found is not State.INWARD and main.mode is not Mode.ANYBODY:
        return found
    if cores >= BUSY_PROCESS or _runs_on(subject.threads, now):
        return State.RUNNING
    others = [wait for wait in waits.values() if wait is not main]
    if any(wait.outward or wait.unseen for wait in others):
        return State.WAITING
    states = {_of_wait(wait) for wait in others}
    return next((one for one in (State.STORAGE, State.SLEEPING) if one in states), found)


def _runs_on(before: Threads, now: Threads) -> bool:
    """Whether a thread was running or runnable at both looks."""
    running = {thread.task for thread in before.threads if thread.state == "R"}
    return any(thread.state == "R" and thread.task in running for thread in now.threads)


def _of_wait(wait: Wait) -> State:
    if wait.kind is Kind.SLEEP:
        return State.SLEEPING if wait.seconds_at_least else State.RETRYING
    if wait.kind is Kind.STORAGE:
        return State.STORAGE
    if wait.outward or wait.unseen or wait.mode is Mode.ANYBODY:
        return State.WAITING
    return State.INWARD


def main() -> None:
    """Answer questions until the input ends."""
    die_with_parent(os.getppid())
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (LIFE_CPU_SECONDS, LIFE_CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
    os._exit(0)  # without waiting for threads that wait for an answer
