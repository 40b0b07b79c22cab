"""A command without a rank's record: where its processes stand, and whether they do anything."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.core.processes import Children
from stagewatch.host.procfs import Procfs
from stagewatch.inspect import command
from stagewatch.inspect.command import InspectOptions
from stagewatch.inspect.processes import Commands
from stagewatch.judgement.limits import DEFAULT
from tests.running import clean_environ
from tests.waiting import wait_for

QUEUES = """
import multiprocessing, os, threading
from stagewatch.core.processes import die_with_parent
multiprocessing.set_start_method("fork")  # no longer the default from Python 3.14 on
def rollout(orders, results):
    die_with_parent()
    while True:
        orders.get()
        results.put(1)
def collect(results):
    return results.get()
orders, results = multiprocessing.Queue(), multiprocessing.Queue()
multiprocessing.Process(target=rollout, args=(orders, results), daemon=True).start()
multiprocessing.Process(target=os._exit, args=(7,), daemon=True).start()
def refresh():
    threading.Event().wait()
threading.Thread(target=refresh, daemon=True).start()
print("ready", flush=True)
collect(results)
"""


def test_a_trainer_and_a_worker_that_wait_at_plain_queues_are_shown(
    record_dir: Path, tmp_path: Path, children: Children, capsys: pytest.CaptureFixture[str]
) -> None:
    script, log = tmp_path / "train.py", tmp_path / "log"
    script.write_text(QUEUES)
    run = [sys.executable, "-m", "stagewatch.cli", "run", "--", sys.executable, str(script)]
    process = children.start(
        run, log=log, environ=clean_environ({"STAGEWATCH_DIR": str(record_dir)})
    )
    wait_for(lambda: "ready" in log.read_text(), "its processes")
    options = InspectOptions(record_dir=record_dir, job=f"run-{process.pid}-{os.uname().nodename}")

    def still() -> bool:
        capsys.readouterr()
        return command._look(options, DEFAULT) == 3

    wait_for(still, "a look during which nothing happens", 120)
    told = capsys.readouterr().out
    assert "none of its 2 processes has done anything for" in told
    assert "train.py" in told and "sleeps" in told
    assert "it exited with status 7" in told
    if command.StackTaker().installed:
        assert " in collect; " in told and " in rollout" in told
        assert " in refresh" in told, "another thread of the trainer"


def test_a_reader_of_proc_that_does_not_answer_ends_no_look() -> None:
    class Silent:
        def read(self, file: str, pids: object, prefixes: object = ()) -> dict[int, bytes]:
            raise SourceError("the reader of /proc does not answer")

        def blocked(self, file: str) -> frozenset[int]:
            return frozenset()

    found = Commands(Procfs(), Silent()).without_record((), ())
    assert (found.lines, found.still) == ([], False)
