"""What a rank can do: the vocabulary of the programmes of shapes.

Each function is an action, its arguments are those of the entry; README.md lists them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import stagewatch
from stagewatch.core.processes import die_with_parent
from tests.hangbench.server import address

Rank = Any
"""A `process.Rank`, which knows this vocabulary."""

ACTIONS: dict[str, Callable[..., Any]] = {}
_PIECE = 1 << 20
_COMPILER = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
source = chr(10).join(f"def f{i}(a, b): return [a * {i} + b, {{a: b}}]" for i in range(500))
while time.monotonic() < end:
    compile(source, "generated", "exec") if sys.argv[2] == "compute" else time.sleep(0.5)
"""
_HELPER = """
import os, sys, time
for line in sys.stdin:
    seconds, ending = line.split()
    time.sleep(float(seconds))
    if ending == "die":
        os.kill(os.getpid(), 9)
    if ending == "hang":
        time.sleep(86400)
    os.write(int(sys.argv[1]), b"!")
"""
_SINK = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
client, _ = server.accept()
while data := client.recv(1 << 16):
    time.sleep(len(data) / float(sys.argv[1]))
"""
_BURST_SECONDS = 0.1


class Finish(Exception):
    """The rank leaves the loop."""


@dataclass(frozen=True, slots=True)
class Slowness:
    """How much longer a rank's work takes, and in which steps."""

    factor: float
    since: int
    """Step in which it began."""
    steps: int
    period: int
    """Slow in the first `steps` of each `period` steps; 0: in all."""
    rotate: int
    """Another rank has its turn after so many steps; 0: whoever is slow remains it."""

    def applies(self, step: int, turn: bool) -> bool:
        """Whether it is in force in this step, for a rank that has or has not its turn."""
        on = not self.period or (step - self.since) % self.period < self.steps
        return on and (turn or not self.rotate)


def action(function: Callable[..., Any]) -> Callable[..., Any]:
    """Put a function into the vocabulary, by its name."""
    ACTIONS[function.__name__.rstrip("_")] = function
    return function


# Work


@action
def sleep(
    me: Rank, seconds: float, spread: float = 0.0, hold: int = 1, chance: float = 1.0
) -> None:
    """One sleep, which may differ from rank to rank, or happen only now and then."""
    if chance == 1.0 or me.drawn("chance").random() < chance:
        share = me.drawn("spread", hold).lognormvariate(0.0, spread)
        time.sleep(me.duration(seconds * share, "sleep"))


@action
def compute(me: Rank, seconds: float, memory: bool = True) -> None:
    """Matrices, in new memory or in place."""
    end = time.monotonic() + me.duration(seconds, "compute")
    _compute(lambda: time.monotonic() < end, memory)


@action
def loop(me: Rank, seconds: float) -> None:
    """Pure Python."""
    end = time.monotonic() + me.duration(seconds, "compute")
    while time.monotonic() < end:
        pass


@action
def io(
    me: Rank,
    seconds: float = 1.0,
    on: str = "file",
    mode: str = "write",
    megabytes: int = 1,
    fault: str = "",
    milliseconds: int = 2000,
) -> None:
    """Write and sync, or read, piece by piece."""
    if fault:
        fresh = me.directory / f"control.{me.rank}"
        fresh.write_text(f"{fault} {mode} {milliseconds if fault == 'slow' else 0}\n")
        fresh.replace(me.directory / "control")
    where = me.directory / ("mnt" if on == "fuse" else ".") / f"data.{me.rank}"
    end = time.monotonic() + me.duration(seconds, "io")
    if mode == "read" and not where.exists():
        where.write_bytes(bytes(megabytes * _PIECE))
    while True:
        with where.open("rb" if mode == "read" else "wb") as file:
            for _ in range(megabytes):
                if mode == "read":
                    file.read(_PIECE)
                else:
                    file.write(bytes(_PIECE))
            if mode == "write":
                file.flush()
                os.fsync(file.fileno())
        if time.monotonic() >= end:
            return
        time.sleep(0.02)


@action
def launch(me: Rank, seconds: float, share: float = 0.1) -> None:
    """A GPU at work: short bursts of the CPU launch kernels, and are waited for."""
    end = time.monotonic() + me.duration(seconds, "compute")
    while time.monotonic() < end:
        _burst(_BURST_SECONDS * share)
        time.sleep(_BURST_SECONDS * (1 - share))


@action
def upload(me: Rank, seconds: float, rate: float = 2.0) -> None:
    """Real bytes over TCP, to a server of its own that takes so many megabytes a second."""
    end = time.monotonic() + me.duration(seconds, "io")
    command = [sys.executable, "-c", _SINK, str(rate * _PIECE)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
    assert server.stdout is not None
    with socket.create_connection(("127.0.0.1", int(server.stdout.readline()))) as client:
        while time.monotonic() < end:
            client.sendall(bytes(1 << 16))
    server.kill()
    server.wait()


@action
def ask(me: Rank, seconds: float = 0.0, ending: str = "answer") -> None:
    """Have a helper process of this rank's own work, and read its answer from a pipe, which does
    not end with the helper."""
    if "helper" not in me.kept:
        reader, writer = os.pipe()
        command = [sys.executable, "-c", _HELPER, str(writer)]
        helper = subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=(writer,), preexec_fn=die_with_parent
        )
        me.kept["helper"] = helper, reader
    helper, reader = me.kept["helper"]
    assert helper.stdin is not None
    helper.stdin.write(f"{me.duration(seconds, 'io'):.6f} {ending}\n".encode())
    helper.stdin.flush()
    os.read(reader, 1)


@action
def child(me: Rank, seconds: float, how: str = "compute") -> None:
    """Another process that compiles, or sleeps."""
    _child(me.duration(seconds, "compute"), how).wait()


@action
def threads(me: Rank, seconds: float) -> None:
    """A thread that computes, and this one waits for it."""
    worker = threading.Thread(target=compute, args=(me, seconds), daemon=True)
    worker.start()
    worker.join()


@action
def heartbeat(me: Rank, seconds: float = 0.0, period: float = 1.0) -> None:
    """Marks of progress, with sleeps between them."""
    end = time.monotonic() + seconds
    me.mark()
    while time.monotonic() < end:
        time.sleep(period)
        me.mark()


@action
def expect(me: Rank, seconds: float) -> None:
    """Announce a pause."""
    announce = getattr(stagewatch, "expect", None)
    if announce and me.instrumented:
        announce(seconds)


@action
def step_mark(me: Rank) -> None:
    """The step alone."""
    me.mark(me.step)


# Communication


@action
def init_group(me: Rank) -> None:
    """Meet all others to form the world."""
    me.form()


@action
def collective(
    me: Rank,
    group: str = "world",
    op: str = "all_reduce",
    elements: int = 1000,
    lost: bool = False,
    beat: float = 0.0,
    **more: bool,
) -> None:
    """Meet the other members; `async` returns at once, and `wait` ends it; with a beat it looks
    every so many seconds if all are there, and marks progress each time."""
    if set(more) - {"async"}:
        raise TypeError(f"unknown arguments {sorted(more)}")
    if more.get("async"):
        me.meeting.begin_async(group, op, elements)
        me.pending.append((group, op, elements))
        return
    with me.reported(group, op=op, elements=elements):
        if lost:
            me.meeting.lose(group, op, elements)
        if beat:
            me.meeting.begin_async(group, op, elements)
            while not me.meeting.oldest_is_complete():
                me.mark()
                time.sleep(beat)
            me.meeting.wait_oldest()
        else:
            me.meeting.collective(group, op, elements)


@action
def wait(me: Rank) -> None:
    """End the oldest asynchronous collective."""
    group, op, elements = me.pending.pop(0)
    with me.reported(group, op=op, elements=elements):
        me.meeting.wait_oldest()


@action
def send(me: Rank, peer: int | str) -> None:
    """One message to a peer."""
    to = me.peer(peer)
    with me.reported("p2p", op="send", peer=to):
        me.meeting.send(to)


@action
def recv(me: Rank, peer: int | str) -> None:
    """One message from a peer."""
    source = me.peer(peer)
    with me.reported("p2p", op="recv", peer=source):
        me.meeting.receive(source)


@action
def put(me: Rank, queue: str, depth: int = 2, via: str = "") -> None:
    """Add to a queue, of which the client is not told."""
    me.queues[queue].put()


@action
def get(
    me: Rank,
    queue: str,
    beat: float = 0.0,
    timeout: float = 0.0,
    failing: str = "raise",
    via: str = "",
) -> None:
    """Take from a queue, of which the client is not told; with a beat it asks again and again, and
    marks progress each time; with a time-out it ends, or goes on without."""
    source = me.queues[queue]
    if beat:
        got = source.get(timeout=0)
        while not got:
            me.mark()
            got = source.get(timeout=beat)
    elif not source.get(timeout or None):
        _without(f"nothing came from {queue} within {timeout:.0f} s", failing)


@action
def call(
    me: Rank,
    server: str,
    timeout: float = 0.0,
    tries: int = 1,
    pause: float = 1.0,
    beat: bool = False,
    failing: str = "raise",
) -> None:
    """Ask a server over HTTP, and wait for its answer; after an error or a time-out once more, up
    to so many times (0: for ever), with a mark of progress between them where it has a beat."""
    import requests

    session: requests.Session = me.kept.setdefault("session", requests.Session())
    host, port = address(me.directory, server)
    tried = 0
    while True:
        try:
            answer = session.post(f"http://{host}:{port}/work", timeout=timeout or None)
            answer.raise_for_status()
        except requests.RequestException as error:
            problem = str(error)
        else:
            return
        tried += 1
        if tried == tries:
            _without(f"{server} has given no answer: {problem}", failing)
            return
        if beat:
            me.mark()
        time.sleep(pause)


@action
def ddp(me: Rank, branch: bool = False) -> None:
    """Forward and backward of a model under DistributedDataParallel."""
    began = time.time_ns()
    me.meeting.ddp(branch)
    me.board.add_waiting(me.rank, time.time_ns() - began)


@action
def skip(me: Rank, count: int = 1) -> None:
    """Leave out the next entries."""
    me.skipping = count


@action
def repeat(me: Rank, times: int, entries: Sequence[Any]) -> None:
    """Play some entries so many times."""
    for _ in range(times):
        me.play_within(entries)


@action
def branch(
    me: Rank,
    entries: Sequence[Any],
    otherwise: Sequence[Any] = (),
    chance: float = 0.5,
    together: bool = True,
) -> None:
    """Play these entries or the others, by a chance of each step; all ranks draw alike together."""
    ways = me.drawn("branch", alike=together)
    me.play_within(entries if ways.random() < chance else otherwise)


# Faults


@action
def hang(me: Rank, how: str) -> None:
    """Never return."""
    _HANGS[how](me)
    raise AssertionError(f"{how} came back")


@action
def livelock(me: Rank, period: float = 0.5, marks: str = "heartbeat") -> None:
    """Try again and again."""
    while True:
        if marks == "stage":
            with me.stage("rollout", "retry"):
                time.sleep(period)
        else:
            if marks == "heartbeat":
                me.mark()
            time.sleep(period)


@action
def signal_(me: Rank, name: str) -> None:
    """A signal to itself."""
    os.kill(os.getpid(), signal.Signals[f"SIG{name}"])
    time.sleep(0.05)


@action
def exit_(me: Rank, status: int = 0, abrupt: bool = False) -> None:
    """End, orderly or not."""
    if abrupt:
        os._exit(status)
    sys.exit(status)


@action
def raise_(me: Rank) -> None:
    """An exception that nobody catches."""
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


@action
def slow(
    me: Rank, factor: float, on: str = "both", steps: int = 0, period: int = 0, rotate: int = 0
) -> None:
    """Be slow from now on: always, in some steps of each period, or whenever it is one's turn."""
    slowness = Slowness(factor, me.step, steps, period, rotate)
    for kind in ("sleep", "compute") if on == "both" else (on,):
        me.slowness[kind] = slowness


@action
def finish(me: Rank) -> None:
    """Leave the loop."""
    raise Finish


@action
def fail(me: Rank, server: str, how: str, seconds: float = 0.0) -> None:
    """Break a server, in one of its ways."""
    host, port = address(me.directory, server)
    request = urllib.request.Request(f"http://{host}:{port}/fail/{how}/{seconds}", method="POST")
    with urllib.request.urlopen(request, timeout=10):
        pass


@action
def suspend(me: Rank, seconds: float, whom: list[int] | None = None) -> None:
    """Have the player stop processes for a while."""
    me.tell("suspend", seconds=seconds, whom=whom)


@action
def reform(
    me: Rank,
    world: int,
    fresh: list[int] | None = None,
    gone: list[int] | None = None,
    rejoin: bool = True,
    on_node: int | None = None,
) -> None:
    """Form the world anew."""
    me.reform(world, {*(fresh or ()), *(gone or ())}, gone or [], rejoin, on_node)


@action
def restart(me: Rank, down: float = 10.0) -> None:
    """Be killed, and started anew in place after a while; nobody else hears of it."""
    me.tell("restart", down=down)
    os.kill(os.getpid(), signal.SIGKILL)


@action
def restart_agent(me: Rank, node: int = 0, down: float = 5.0) -> None:
    """Have the player restart an agent."""
    me.tell("restart_agent", node=node, down=down)


@action
def kill_node(me: Rank, node: int) -> None:
    """Have the player kill an agent and all ranks beside it."""
    me.tell("kill_node", node=node)
    time.sleep(0.5)


def _without(problem: str, failing: str) -> None:
    if failing == "raise":
        raise RuntimeError(problem)


def _compute(goes_on: Callable[[], bool], memory: bool) -> None:
    import numpy as np

    own, out = np.ones((200, 200)), np.empty((200, 200))
    while goes_on():
        if memory:
            np.ones((1024, 1024)).sum()  # 8 MiB, which the allocator gives back
        else:
            np.dot(own, own, out=out)


def _burst(seconds: float) -> None:
    end = time.monotonic() + seconds
    _compute(lambda: time.monotonic() < end, memory=False)


def _child(seconds: float, how: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _COMPILER, str(seconds), how]
    return subprocess.Popen(command, preexec_fn=die_with_parent)


def _for_ever() -> bool:
    return True


def _hang_loop(_: Rank) -> None:
    while True:
        pass


def _hang_futex(_: Rank) -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _hang_deadlock(_: Rank) -> None:
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def take(one: threading.Lock, other: threading.Lock) -> None:
        with one:
            both.wait()
            with other:
                pass

    threading.Thread(target=take, args=(second, first), daemon=True).start()
    take(first, second)


def _hang_event(_: Rank) -> None:
    event = threading.Event()
    event.set()
    event.clear()
    event.wait()


def _hang_poll(_: Rank) -> None:
    while True:
        time.sleep(0.02)


def _hang_fastpoll(_: Rank) -> None:
    while True:
        time.sleep(0.0002)


def _hang_connect(_: Rank) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        client.recv(1)


def _hang_dstate(_: Rank) -> None:
    """A parent waits uninterruptibly for the child of a vfork."""
    libc = ctypes.CDLL(None)
    if libc.vfork() == 0:
        libc.prctl(1, signal.SIGKILL)
        libc.pause()


def _hang_dead_thread(_: Rank) -> None:
    done = threading.Event()

    def work() -> None:
        with contextlib.suppress(RuntimeError):
            raise RuntimeError("worker died")
        return  # before it could say that it is done

    threading.Thread(target=work, daemon=True).start()
    done.wait()


_HANGS: dict[str, Callable[[Rank], None]] = {
    "loop": _hang_loop,
    "compute": lambda _: _compute(_for_ever, memory=False),
    "allocate": lambda _: _compute(_for_ever, memory=True),
    "futex": _hang_futex,
    "deadlock": _hang_deadlock,
    "event": _hang_event,
    "sleep": lambda _: time.sleep(86400),
    "poll": _hang_poll,
    "fastpoll": _hang_fastpoll,
    "pipe": lambda _: print(os.read(os.pipe()[0], 1)),
    "connect": _hang_connect,
    "dstate": _hang_dstate,
    "dead_thread": _hang_dead_thread,
    "child": lambda _: print(_child(86400, "sleep").wait()),
}
