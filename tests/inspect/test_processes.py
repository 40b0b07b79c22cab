"""A command without a rank's record: where its processes stand, and whether they do anything."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.core.processes import Children
from stagewatch.host.procfs import ProcessStat, Procfs
from stagewatch.inspect import command
from stagewatch.inspect.command import InspectOptions
from stagewatch.inspect.processes import Commands, stand_still
from stagewatch.judgement.limits import DEFAULT
from stagewatch.run import stillness
from stagewatch.run.stillness import Stillness
from tests.running import clean_environ
from tests.waiting import wait_for

QUEUES = """
import multiprocessing, os
from stagewatch.core.processes import die_with_parent
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
        assert " in collect" in told and " in rollout" in told


def test_a_reader_of_proc_that_does_not_answer_ends_no_look() -> None:
    class Silent:
        def read(self, file: str, pids: object, prefixes: object = ()) -> dict[int, bytes]:
            raise SourceError("the reader of /proc does not answer")

        def blocked(self, file: str) -> frozenset[int]:
            return frozenset()

    found = Commands(Procfs(), Silent()).untold((), ())
    assert (found.lines, found.still) == ([], False)


STAT = ProcessStat("python", "S", 1, 1, 1.0, 0.0, 1, 1, 1)


@pytest.mark.parametrize(
    ("after", "still"),
    [
        (STAT, True),
        (replace(STAT, user_seconds=1.5), False),
        (replace(STAT, state="R"), False),
        (replace(STAT, state="D"), False),
        (replace(STAT, state="Z"), False),
    ],
)
def test_processes_stand_still_that_use_no_processor(after: ProcessStat, still: bool) -> None:
    assert stand_still({1: STAT}, {1: after}, 3.0) is still


def test_stillness_is_told_once_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stillness, "STILL_SECONDS", 0.0)
    watched = Stillness()
    assert watched.look({1: STAT}) is not None  # nothing could have been done yet
    watched.look({1: STAT})
    assert watched.look({1: STAT}) is None
    assert watched.lately() is not None
    monkeypatch.setattr(stillness, "AFTER_SECONDS", 0.0)
    assert watched.lately() is None
