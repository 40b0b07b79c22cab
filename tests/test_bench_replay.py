"""The replay of healthy days: it sees what it must, and loses nothing by looking away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stagewatch.core.exposition import Samples
from tests.bench.replay_jobs import Pause, Shape, Work, script
from tests.bench.replay_judge import NAMED, SUSPECTED, Judge
from tests.bench.replay_series import Job

STEP = (Work(2),)
HOUR = 1 / 24
GRID = 5
"""Seconds between two looks."""
COUNTED = tuple[str, float, str]


def seen(
    shape: Shape, folder: Path, *, always: bool = False
) -> tuple[set[COUNTED], dict[int, list[object]]]:
    """What the judge says of an hour of a job, with its time and evidence, and what the ranks have
    recorded of their stages whenever it is looked at."""
    judge = Judge(GRID)
    records: dict[int, list[object]] = {}

    def see(job: Job, now: int, out: Samples) -> float:
        lanes = [(one.totals, one.lanes[0]) for one in job.read()]
        records[now] = [(totals, replace(one, times={}, steps=())) for totals, one in lanes]
        return judge.see(job, now, out)

    job = Job("a-job", folder, HOUR, see, every=GRID, always=always, alike=not always)
    job.live(script(shape, job))
    return {(one.what, one.begin, one.evidence) for one in judge.episodes}, records


def test_nothing_is_lost_by_looking_away(tmp_path: Path) -> None:
    pauses = (
        Pause("validates", 45, 0.1, "gpu", every=500),
        Pause("suspended", 90, 0.1, "stopped", every=1200),
        Pause("rank 0 evaluates", 45, 0.1, "gpu", every=300, who="first"),
        Pause("a batch is late", 12, 0.5, "waits for storage", every=200, who="one"),
    )
    shape = Shape("", STEP, pauses, restarts_a_day=36, down=60)
    found, records = seen(shape, tmp_path)
    always, all_records = seen(shape, tmp_path, always=True)
    assert found == always
    assert {what for what, *_ in found} >= {SUSPECTED, NAMED}
    assert len(all_records) == 3600 / GRID
    assert len(records) < len(all_records) / 3
    assert records == {now: all_records[now] for now in records}
