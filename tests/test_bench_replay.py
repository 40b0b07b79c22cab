"""The replay of healthy days: it sees what it must, and loses nothing by looking away."""

from __future__ import annotations

from pathlib import Path

from tests.bench.replay_jobs import Pause, Shape, Work, script
from tests.bench.replay_judge import NAMED, SUSPECTED, Judges
from tests.bench.replay_series import GRID, Job

STEP = (Work(2),)
HOUR = 1 / 24
COUNTED = tuple[str, float, str]


def seen(shape: Shape, folder: Path, *, always: bool = False) -> tuple[set[COUNTED], int]:
    """What the judge says of an hour of a job, with its time and evidence, and how often it is
    looked at."""
    judges = Judges((GRID,))
    job = Job("a-job", folder, HOUR, judges.see, always=always)
    job.live(script(shape, job))
    return {(one.what, one.begin, one.evidence) for one in judges.watched[0].episodes}, job.looks


def test_nothing_is_lost_by_looking_away(tmp_path: Path) -> None:
    pauses = (
        Pause("validates", 45, 0.1, "gpu", every=500),
        Pause("suspended", 90, 0.1, "stopped", every=1200),
        Pause("rank 0 evaluates", 45, 0.1, "gpu", every=300, who="first"),
        Pause("a batch is late", 12, 0.5, "waits for storage", every=200, who="one"),
    )
    shape = Shape("", STEP, pauses, restarts_a_day=36, down=60)
    found, looks = seen(shape, tmp_path)
    always, all_looks = seen(shape, tmp_path, always=True)
    assert found == always
    assert {what for what, *_ in found} >= {SUSPECTED, NAMED}
    assert all_looks == 3600 / GRID
    assert looks < all_looks / 3
