"""A reader accepts only whole records from a writer that never rests."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.records import Lane, RankRecord
from tests.running import Python
from tests.waiting import wait_for

READS = 1500


def consistent(record: RankRecord, lane: Lane) -> None:
    """What holds of a loop that enters and leaves one stage per step, whenever one looks."""
    assert lane.step is not None
    assert lane.step == (lane.marks - 1) // 2  # a mark as the stage opens, one as it closes
    assert len(lane.frames) <= 1
    for frame in lane.frames:
        assert frame.step == lane.step
        assert frame.started <= lane.progress


def test_threads_that_write_at_once_do_not_tear_each_other(
    python: Python, record_dir: Path
) -> None:
    python(
        """
        import threading
        import stagewatch
        stagewatch.init()

        def work():
            step = 0
            while True:
                with stagewatch.stage("rollout", step=step, substage="s" * (step % 30)):
                    pass
                step += 1

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        work()
        """,
        STAGEWATCH_DIR=str(record_dir),
    )
    with closing(RecordDirectory(record_dir, Procfs())) as reader:
        wait_for(lambda: any(len(record.lanes) == 4 for record in reader.read()), "four lanes")
        seen = set()
        for _ in range(READS):
            (record,) = reader.read()
            for lane in record.lanes:
                if not lane.marks:
                    continue
                consistent(record, lane)
                for frame in lane.frames:
                    assert frame.substage == "s" * ((frame.step or 0) % 30)
            seen.add(tuple(lane.step for lane in record.lanes))
    assert len(seen) > 3  # threads that wait for their turn do so in the middle of a store
