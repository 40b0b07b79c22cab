"""How processes end, as seen by somebody who is not their parent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from stagewatch.core.processes import Children
from stagewatch.core.words import ended
from stagewatch.host.procfs import Procfs
from stagewatch.run.endings import Endings
from tests.waiting import wait_for

PROC = Procfs()


@pytest.fixture
def endings() -> Iterator[Endings]:
    """A watcher."""
    with closing(Endings(PROC)) as endings:
        yield endings


def _parents(children: Children, script: str) -> int:
    """Starts a shell that waits for a child of its own; the pid of that child."""
    shell = children.start(["sh", "-c", f"sh -c '{script}' & wait; sleep 600"])

    def child() -> int:
        with open(f"/proc/{shell.pid}/task/{shell.pid}/children") as file:  # noqa: PTH123
            return int((file.read().split() or ["0"])[0])

    return wait_for(child, "the child of the shell")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("read wait; exit 3", "it exited with status 3"),
        ("read wait; kill -9 $$", "killed by SIGKILL (Killed)"),
    ],
)
def test_a_grandchild_that_its_parent_has_waited_for(
    script: str, told: str, children: Children, endings: Endings, tmp_path: object
) -> None:
    fifo = f"{tmp_path}/fifo"
    os.mkfifo(fifo)
    pid = _parents(children, f"exec < {fifo}; {script}")
    stat = PROC.stat(pid)
    assert stat is not None
    endings.watch({pid: stat})
    with open(fifo, "w") as writer:  # noqa: PTH123
        writer.write("go\n")
    wait_for(endings.seen, "its end")
    (ending,) = endings.seen()
    assert (ending.pid, ending.start_ticks) == (pid, stat.start_ticks)
    assert ended(ending.status) in (
        told,
        "nobody saw how",
    )  # before Linux 6.15 its parent may be faster
    assert endings.of(pid, stat.start_ticks) is ending
    assert endings.of(pid, stat.start_ticks + 1) is None
