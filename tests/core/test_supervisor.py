"""A question to a child that is begun, and asked for its answer later."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from stagewatch.core.children.supervisor import Supervisor
from stagewatch.core.errors import SourceError, Stuck
from tests.waiting import wait_for

CHILD = """
import json, os, sys
for line in sys.stdin:
    while not os.path.exists(json.loads(line)):
        pass
    print(json.dumps("there"), flush=True)
"""


def start() -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", CHILD], stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    found = Supervisor("the child", start, start_timeout=3600.0, timeout=0.2)
    yield found
    found.close()


def test_who_begins_a_question_goes_on_until_there_is_an_answer(
    supervisor: Supervisor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("question") / "file"
    supervisor.begin(str(file))
    assert supervisor.answer(str) is None
    file.touch()
    assert wait_for(lambda: supervisor.answer(str), "it has answered") == "there"
    supervisor.begin(str(file.with_name("absent")))

    def too_late() -> bool:
        try:
            return supervisor.answer(str) is not None
        except Stuck:
            return True

    wait_for(too_late, "the deadline has passed")
    wait_for(lambda: supervisor.pid is None, "the child is gone")


class Slow(subprocess.Popen[bytes]):
    """A child that takes longer to end than anybody waits, as on a busy machine."""

    may_end = threading.Event()

    def wait(self, timeout: float | None = None) -> int:
        """As of any, but not before it may end."""
        if timeout is not None and not self.may_end.is_set():
            raise subprocess.TimeoutExpired("child", timeout)
        self.may_end.wait()
        return super().wait(timeout)


def test_a_child_that_ends_after_the_close_is_reaped_and_its_pipes_are_closed() -> None:
    pipe = subprocess.PIPE
    process = Slow([sys.executable, "-c", CHILD], stdin=pipe, stdout=pipe)
    supervisor = Supervisor("the child", lambda: process)
    supervisor.begin("/absent")
    supervisor.close()
    assert process.returncode is None
    process.may_end.set()
    pipes = [pipe for pipe in (process.stdin, process.stdout) if pipe]
    wait_for(lambda: len(pipes) == sum(pipe.closed for pipe in pipes) == 2, "closed pipes")
    assert process.returncode is not None


def test_a_child_that_is_being_started_during_the_close_is_ended() -> None:
    begun, closed = threading.Event(), threading.Event()
    processes: list[subprocess.Popen[bytes]] = []

    def late() -> subprocess.Popen[bytes]:
        begun.set()
        closed.wait()
        processes.append(start())
        return processes[0]

    supervisor = Supervisor("the child", late, timeout=1.0)

    def ask() -> None:
        with pytest.raises(SourceError, match="the child is closed"):
            supervisor.begin("/absent")

    thread = threading.Thread(target=ask)
    thread.start()
    begun.wait()
    supervisor.close()
    closed.set()
    thread.join()
    (process,) = processes
    wait_for(lambda: process.poll() is not None, "its end")
    assert all(pipe.closed for pipe in (process.stdin, process.stdout, process.stderr) if pipe)
