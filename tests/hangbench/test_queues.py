"""Queues mean the same over whatever they go: real processes put and get, wait, and die."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from tests.hangbench.probes import stack
from tests.hangbench.queues import BROKERED, VIAS, open_queue
from tests.hangbench.queues.place import Place, clean
from tests.hangbench.shape import ShapeError, load
from tests.waiting import wait_for

OWN = sorted(VIAS - {"rendezvous", "thread"})
"""All but the one that needs a whole job, and the one between threads."""
USER = """
import os, sys, time
from pathlib import Path
from stagewatch.core.processes import die_with_parent
from tests.hangbench.queues import open_queue
from tests.hangbench.queues.place import Place
die_with_parent()
via, directory, name, depth, *acts = sys.argv[1:]
queue = open_queue(via, Place(Path(directory), 0, 0, int(depth)))
log = open(Path(directory) / f"{name}.log", "w", buffering=1)
print("open", file=log)
for act in acts:
    if act == "hold":
        time.sleep(3600)
    print(act, queue.put() if act == "put" else queue.get(), file=log)
"""


class Users:
    """Processes that use one queue."""

    def __init__(self, via: str, directory: Path, depth: int) -> None:
        self.via, self.directory, self.depth = via, directory, depth
        self._children = Children()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        if via == "zmq":
            pytest.importorskip("zmq")
        if via in BROKERED:
            self._start("broker", "-m", "tests.hangbench.queues.broker", str(directory), "0", via)

    def start(self, name: str, *acts: str) -> None:
        """Start one that does so, in this order, and wait until it has opened the queue."""
        self._start(name, "-c", USER, self.via, str(self.directory), name, str(self.depth), *acts)
        wait_for(lambda: self.did(name) is not None, f"{name} opens the queue")

    def did(self, name: str) -> int | None:
        """How much of it a process has done; None before it has opened the queue."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.directory / f"{name}.log").read_text().splitlines()
            return len(lines) - 1 if lines else None
        return None

    def waits(self, name: str) -> bool:
        """Whether a process sleeps in the kernel."""
        pid = self.processes[name].pid
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.processes[name].kill()
        self.processes[name].wait()

    def stop(self) -> None:
        """End all."""
        self._children.stop(patience=0.1)
        clean(self.directory)

    def _start(self, name: str, *arguments: str) -> None:
        self.processes[name] = self._children.start([sys.executable, *arguments])


@pytest.fixture
def two(via: str, tmp_path: Path) -> Iterator[Users]:
    users = Users(via, tmp_path, 2)
    yield users
    users.stop()


@pytest.mark.parametrize("via", OWN)
def test_a_queue_is_bounded_and_each_thing_is_taken_once(two: Users) -> None:
    two.start("producer", *["put"] * 5, "hold")
    wait_for(lambda: two.did("producer") == 2, "the queue is full")
    two.start("consumer", *["get"] * 4)
    wait_for(lambda: two.did("consumer") == 4, "all have been taken")
    wait_for(lambda: two.did("producer") == 5, "there is room again")
    two.start("other", *["get"] * 2)
    wait_for(lambda: two.did("other") == 1, "one was left")
    assert wait_for(lambda: two.waits("other"), "it waits for another")
    assert two.did("other") == 1


@pytest.mark.parametrize("via", OWN)
def test_several_put_and_several_get(two: Users) -> None:
    for name in ("a", "b", "c"):
        two.start(f"producer {name}", *["put"] * 4)
    for name in ("a", "b"):
        two.start(f"consumer {name}", *["get"] * 6)
    for name in ("a", "b"):
        wait_for(lambda name=name: two.did(f"consumer {name}") == 6, "each has what it wants")


@pytest.mark.parametrize("via", OWN)
def test_who_waits_goes_on_waiting_once_the_others_are_dead_and_takes_from_their_successor(
    two: Users,
) -> None:
    two.start("producer", "put", "hold")
    two.start("consumer", *["get"] * 2)
    wait_for(lambda: two.did("consumer") == 1, "it has got one")
    two.kill("producer")
    time.sleep(0.2)
    assert two.processes["consumer"].poll() is None
    two.start("successor", "put", "hold")
    wait_for(lambda: two.did("consumer") == 2, "it has got another")


@pytest.mark.parametrize("via", OWN)
def test_a_time_out_ends_a_get_and_takes_nothing(two: Users, via: str) -> None:
    if via in BROKERED:
        wait_for(lambda: (two.directory / "broker.0.port").exists(), "the broker listens")
    queue = open_queue(via, Place(two.directory, 0, 0, 2))
    assert not queue.get(timeout=0)
    assert not queue.get(timeout=0.1)
    two.start("producer", *["put"] * 2, "hold")
    wait_for(lambda: two.did("producer") == 2, "both are there")
    wait_for(lambda: queue.get(timeout=0), "it takes one at once")
    assert queue.get(timeout=30)
    queue.close()


@pytest.mark.parametrize("via", OWN)
def test_another_generation_has_another_queue(two: Users, via: str) -> None:
    two.start("producer", "put", "hold")
    following = open_queue(via, Place(two.directory, 1, 0, 2))
    assert not following.get(timeout=0.1)
    following.close()


def test_threads_of_a_rank_have_a_queue_between_them(tmp_path: Path) -> None:
    place = Place(tmp_path, 0, 0, 1)
    one, other = open_queue("thread", place), open_queue("thread", place)
    thread = threading.Thread(target=lambda: [one.put() for _ in range(3)])
    thread.start()
    assert [other.get(timeout=30) for _ in range(3)] == [True] * 3
    thread.join()
    assert not other.get(timeout=0)


@pytest.mark.parametrize("via", ["pipe", "mp_queue"])
def test_a_pipe_is_held_by_who_uses_it_and_by_nobody_else(two: Users) -> None:
    two.start("producer", "hold")
    two.start("consumer", "get")
    wait_for(lambda: two.waits("consumer"), "it waits")
    pipes = [_pipes(two.processes[name].pid) for name in ("producer", "consumer")]
    assert pipes[0] == pipes[1] != set()
    assert not pipes[0] & _pipes(os.getpid())


WAITS = {
    "pipe": ("read", "_read_pipe"),
    "mp_queue": ("read", "_recv"),
    "semaphore": ("futex", "_acquire_item"),
    "unix": ("recvfrom", "_receive_answer"),
    "tcp": ("recvfrom", "_receive_answer"),
    "http": ("recvfrom", "readinto"),
    "zmq": ("poll", "recv_string"),
    "asyncio": ("epoll_wait", "select"),
    "lock_file": ("clock_nanosleep", "_wait_to_look_again"),
}
"""System call and function in which a taker waits."""
NUMBERS = {"0": "read", "7": "poll", "45": "recvfrom", "202": "futex", "230": "clock_nanosleep"}
NUMBERS |= {"232": "epoll_wait"}
"""Of the system calls of x86-64."""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="knows the system calls of x86-64")
@pytest.mark.parametrize("via", OWN)
def test_kernel_and_stack_say_in_what_a_taker_waits(two: Users, via: str) -> None:
    two.start("consumer", "get")
    pid = two.processes["consumer"].pid
    call, function = WAITS[via]
    file = Path(f"/proc/{pid}/syscall")
    wait_for(
        lambda: NUMBERS.get(file.read_text().split()[0]) == call,
        f"{call} and not {file.read_text()}",
    )
    if stack(pid):  # where py-spy may read it
        wait_for(
            lambda: any(name.split(".")[-1] == function for name in stack(pid)),
            f"{function} in {stack(pid)}",
        )


def _pipes(pid: int) -> set[str]:
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    return {link for link in links if link.startswith("pipe:")}


SHAPE = """
title = "A queue"
source = "https://example.org/"
taken = "For a test."
kind = "pipeline"
world = 4
nodes = {nodes}
step = [
    {{ do = "put", queue = "work", ranks = [0], depth = 3{put} }},
    {{ do = "get", queue = "work", ranks = [{getter}]{get} }},
    {{ do = "hang", how = "sleep", ranks = [0], at = 9, trigger = true }},
]
[expect]
culprits = [0]
"""


def _queue_of(tmp_path: Path, nodes: int = 1, getter: int = 1, put: str = "", get: str = "") -> str:
    file = tmp_path / "queue.toml"
    file.write_text(SHAPE.format(nodes=nodes, getter=getter, put=put, get=get))
    return load(file).queues["work"].via


def test_a_queue_is_a_pipe_within_a_node_and_goes_over_tcp_between_nodes(tmp_path: Path) -> None:
    assert _queue_of(tmp_path) == "pipe"
    assert _queue_of(tmp_path, nodes=2, getter=1) == "pipe"
    assert _queue_of(tmp_path, nodes=2, getter=3) == "tcp"
    assert _queue_of(tmp_path, get=', via = "semaphore"') == "semaphore"
    with pytest.raises(ShapeError, match="say the same via and depth"):
        _queue_of(tmp_path, put=', via = "http"', get=', via = "zmq"')
    with pytest.raises(ShapeError, match="via is one of"):
        _queue_of(tmp_path, put=', via = "pigeon"')


def test_a_shape_has_as_many_queues_as_it_likes_up_to_a_bound_that_is_told(tmp_path: Path) -> None:
    put = '{{ do = "put", queue = "work", ranks = [0], depth = 3{put} }},'
    for count in (31, 32):
        more = "\n".join(f'{{{{ do = "put", queue = "{n}", ranks = [0] }}}},' for n in range(count))
        text = SHAPE.replace(put, f"{put}\n{more}").format(nodes=1, getter=1, put="", get="")
        file = tmp_path / f"with_{count}.toml"
        file.write_text(text)
        if count == 31:
            assert len(load(file).queues) == 32
        else:
            with pytest.raises(ShapeError, match="at most 16 groups and 32 queues"):
                load(file)
