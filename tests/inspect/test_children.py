"""A rank that waits for a child of its own: the child's line is what somebody looks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.inspect import evidence
from stagewatch.judgement.facts import BLANK, RankFacts
from stagewatch.ranks.model import Rank
from stagewatch.ranks.stacks import StackTaker, py_spy
from stagewatch.ranks.wait_class import WaitClass
from tests.running import Python
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(py_spy() is None, reason="needs py-spy, of the extra `evidence`")

LOADER = """
import multiprocessing, sys, threading
from stagewatch.core.processes import die_with_parent

class Dataset:
    lock = threading.Lock()

    def __getitem__(self, index):
        with self.lock:
            with self.lock:
                return index

def worker(dataset, queue):
    die_with_parent()
    queue.put("started")
    queue.put(dataset[0])

fork = multiprocessing.get_context("fork")
queue, never = fork.Queue(), fork.Queue()
def begin_epoch():
    fork.Process(target=worker, args=(Dataset(), queue), daemon=True).start()
begin_epoch()
queue.get()
print("waits", flush=True)
def next_batch():
    queue.get()
next_batch()
"""


def test_the_line_of_a_loaders_worker_in_a_deadlock_is_told(python: Python, tmp_path: Path) -> None:
    script = python(LOADER)
    script.said("waits")
    children = Path(f"/proc/{script.pid}/task/{script.pid}/children")
    wait_for(lambda: children.read_text().split(), "the worker")
    rank = Rank("7", "train", 0, script.pid)
    facts = [fact(script.pid)]
    taker = StackTaker()
    try:

        def told() -> RankFacts:
            (found,) = evidence.take([rank], facts, taker, sleep=lambda _: None)
            return found

        found = wait_for(lambda: (one := told()).stack.frame.endswith("__getitem__)") and one, "it")
    finally:
        taker.close()
    assert "in next_batch (its child at " in found.stack.frame
    names = [name for name, _ in found.stack.threads]
    assert any(name.startswith("child ") for name in names)
    inner = dict(found.stack.threads)[next(name for name in names if name.startswith("child "))]
    assert "__getitem__ (" in inner[0]
    assert "begin_epoch" not in " ".join(inner)  # which the fork has of its parent


def fact(pid: int) -> RankFacts:
    """What is known of the rank otherwise."""
    from dataclasses import replace

    return replace(BLANK, job_id="7", role="train", rank=0, pid=pid, wait_class=WaitClass.PARKED)
