"""What other processes and the end of this one do to the record; all processes are real."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.records import Life, RankRecord
from tests.running import Python
from tests.waiting import wait_for


def records(directory: Path) -> list[RankRecord]:
    """Every record, in the order of the ranks."""
    found = RecordDirectory(directory, Procfs())
    try:
        return sorted(found.read(), key=lambda record: record.rank)
    finally:
        found.close()


def test_a_killed_ranks_record_stays_with_its_open_stage(python: Python, record_dir: Path) -> None:
    script = python(
        """
        import time
        import stagewatch
        stagewatch.init(job_id=540, rank=2)
        with stagewatch.stage("weights_update", step=10):
            print("inside")
            time.sleep(600)
        """,
        STAGEWATCH_DIR=str(record_dir),
    )
    script.said("inside")
    (alive,) = records(record_dir)
    assert (alive.life, alive.pid) == (Life.ALIVE, script.pid)
    script.kill()
    (gone,) = records(record_dir)
    assert gone.life is Life.GONE
    assert gone.open == alive.open
    assert (gone.open.stage, gone.open.step) == ("weights_update", 10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_that_ends_a_rank_leaves_the_record(
    number: signal.Signals, python: Python, record_dir: Path
) -> None:
    script = python(
        """
        import os, sys
        import stagewatch
        stagewatch.init()
        os.kill(os.getpid(), int(sys.argv[1]))
        """,
        int(number),
        STAGEWATCH_DIR=str(record_dir),
    )
    script.finish(-number)
    (gone,) = records(record_dir)
    assert gone.life is Life.GONE


def test_an_exception_nobody_caught_leaves_the_record_with_it(
    python: Python, record_dir: Path
) -> None:
    """Its peers wait for such a rank in the next collective; it must not look as if it had
    finished."""
    script = python(
        """
        import stagewatch
        stagewatch.init(rank=5)
        with stagewatch.stage("train", step=12):
            raise MemoryError("CUDA out of memory")
        """,
        STAGEWATCH_DIR=str(record_dir),
    )
    assert "MemoryError: CUDA out of memory" in script.finish(1)
    (gone,) = records(record_dir)
    assert gone.life is Life.GONE
    assert (gone.first_failure.stage, gone.first_failure.step) == ("train", 12)
    assert gone.failures == {("train", "MemoryError"): 1}


def test_an_exception_is_recorded_while_another_thread_keeps_the_rank_alive(
    python: Python, record_dir: Path
) -> None:
    """A logger's or a loader's thread that is no daemon; the rank looked like one between steps."""
    script = python(
        """
        import threading, time
        import stagewatch
        stagewatch.init()
        stagewatch.heartbeat(12)
        threading.Thread(target=time.sleep, args=(600,)).start()
        raise ValueError("reward is NaN")
        """,
        STAGEWATCH_DIR=str(record_dir),
    )
    wait_for(
        lambda: [one.failures for one in records(record_dir)] == [{("idle", "ValueError"): 1}],
        "the exception",
    )
    (alive,) = records(record_dir)
    assert alive.life is Life.ALIVE
    script.kill()


def test_a_failure_that_the_rank_went_on_from_does_not(python: Python, record_dir: Path) -> None:
    python(
        """
        import os
        import stagewatch
        stagewatch.init()
        try:
            with stagewatch.stage("eval", step=1):
                raise TimeoutError("the judge does not answer")
        except TimeoutError:
            pass
        stagewatch.heartbeat(2)
        assert len(os.listdir(os.environ["STAGEWATCH_DIR"])) == 1
        """,
        STAGEWATCH_DIR=str(record_dir),
    ).finish()
    assert list(record_dir.iterdir()) == []


def test_a_forked_child_never_writes_the_parents_record(python: Python, record_dir: Path) -> None:
    """Not even by leaving what was open when it was forked; `init` makes a record of its own."""
    script = python(
        """
        import os, sys, time
        import stagewatch
        from stagewatch.core.processes import die_with_parent
        stagewatch.init(rank=1)
        stagewatch.scalar("reward", 1.0)
        with stagewatch.stage("train", step=1), stagewatch.call("search"):
            with stagewatch.collective("world"):
                child = os.fork()
                if not child:
                    die_with_parent()
                    stagewatch.heartbeat(999)
                    stagewatch.scalar("reward", 999.0)
            if not child:
                with stagewatch.stage("eval"):
                    stagewatch.init(rank=2)
                    stagewatch.heartbeat(1)
            print("ready")
            time.sleep(600)
        """,
        STAGEWATCH_DIR=str(record_dir),
    )
    script.said("ready\nready")
    record, child = records(record_dir)
    assert (record.life, record.pid) == (Life.ALIVE, script.pid)
    assert (record.open.stage, record.open.step) == ("train", 1)
    assert (record.scalars, record.failures, record.lanes[0].marks) == ({"reward": 1.0}, {}, 1)
    assert (record.calls["search"].open, record.groups["world"].sequence) == (1, 1)
    assert set(record.totals) == set()
    assert child.pid not in (0, script.pid)
    assert child.lanes[0].marks == 1


@pytest.mark.parametrize(
    ("method", "end", "left"),
    [
        ("fork", "sys.exit(0)", []),
        ("spawn", "pass", []),
        ("spawn", "sys.exit(3)", [1]),
        ("forkserver", "raise ValueError('x')", [1]),
    ],
)
def test_workers_of_multiprocessing_end_as_they_did(
    method: str, end: str, left: list[int], python: Python, record_dir: Path
) -> None:
    """Such a worker skips `atexit`, and still only a failed one leaves a record behind."""
    script = python(
        f"""
        import multiprocessing, sys
        import stagewatch

        def work():
            stagewatch.init(rank=1)
            stagewatch.heartbeat(1)
            with stagewatch.stage("rollout"), stagewatch.stage("reward"):
                {end}

        if __name__ == "__main__":
            stagewatch.init(rank=0)
            worker = multiprocessing.get_context("{method}").Process(target=work)
            worker.start()
            worker.join()
        """,
        STAGEWATCH_DIR=str(record_dir),
    )
    script.finish()
    assert [(record.rank, record.life) for record in records(record_dir)] == [
        (rank, Life.GONE) for rank in left
    ]
