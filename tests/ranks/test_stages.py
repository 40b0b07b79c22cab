"""Series of the stages collector from records; totals that must never drop."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Histogram, Samples
from stagewatch.core.runner import Job
from stagewatch.host.procfs import Procfs
from stagewatch.ranks import stages as module
from stagewatch.ranks.activity import RanksCollector
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.model import SHOWN_SECONDS
from stagewatch.ranks.record_directory import LINGER_SECONDS, RecordDirectory
from stagewatch.ranks.records import RankRecord
from stagewatch.ranks.stages import (
    DURATIONS,
    FAILURES,
    FOLDED,
    JOB,
    MAX_NAMES,
    MAX_ROLES_PER_USER,
    RETIRED_SECONDS,
    SKIPPED,
    STAGE_CODE,
    STAGE_OPEN,
    STEP_AGE,
    StagesCollector,
)
from tests.fake_clock import Clock
from tests.fixed_node import BOOT, FixedNode
from tests.golden import assert_golden
from tests.records import Shown
from tests.running import Python


@pytest.fixture
def clock() -> Clock:
    return Clock(BOOT)


def collector(shown: Shown, clock: Clock) -> StagesCollector:
    directory: object = shown
    return StagesCollector(directory, boot_clock=clock)  # type: ignore[arg-type]


def completed(samples: Samples, stage: str, job_id: str = "540", role: str = "train") -> int:
    found = samples.families.get(DURATIONS, {}).get((job_id, role, stage))
    return found.count if isinstance(found, Histogram) else 0


def test_a_look_that_takes_seconds_does_not_have_the_ranks_vanish(
    record: RankRecord, clock: Clock
) -> None:
    """As beside hundreds of full records of a neighbour's, or on a machine that is busy."""
    for one in (StagesCollector, RanksCollector):
        assert one.shown_seconds == SHOWN_SECONDS
    job = Job("stages", collector(Shown(record), clock), interval=1.0, clock=clock)
    job.run_once()
    clock.now += SHOWN_SECONDS - 1
    assert job.fresh()
    clock.now += 2
    assert not job.fresh()


def test_the_whole_exposition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = FixedNode(tmp_path, monkeypatch)
    samples = StagesCollector(node.ranks(), boot_clock=lambda: BOOT).collect()
    assert_golden(samples, "stages.prom")


def test_files_that_were_passed_over_are_shown_even_without_any_rank(
    record_dir: Path, tmp_path: Path
) -> None:
    (record_dir / "core").touch()
    proc = Procfs(tmp_path)
    with closing(RecordDirectory(record_dir, proc)) as records:
        found = StagesCollector(RankDirectory(records)).collect()
    assert found.value(SKIPPED, "name") == 1


def test_between_stages_a_rank_is_idle_since_its_last_mark(
    clock: Clock, record: RankRecord
) -> None:
    lane = dataclasses.replace(record.lanes[0], frames=(), progress=BOOT - 30)
    found = collector(Shown(dataclasses.replace(record, lanes=(lane,))), clock).collect()
    key = ("540", "train", "3")
    assert found.value(STAGE_OPEN, *key, "idle", "") == 30
    assert found.value(STAGE_CODE, *key) == 0


@pytest.mark.parametrize(("age", "told"), [(9.9, None), (10.1, 10.1)])
def test_how_long_a_rank_has_been_at_its_step_is_told_from_ten_seconds_on(
    age: float, told: float | None, clock: Clock, record: RankRecord
) -> None:
    steps = ((round((BOOT - age) * 1e9), 0),)
    lane = dataclasses.replace(record.lanes[0], step=7, steps=steps)
    found = collector(Shown(dataclasses.replace(record, lanes=(lane,))), clock).collect()
    assert found.value(STEP_AGE, "540", "train", "3") == (told and pytest.approx(told))


def test_ended_ranks_go_on_counting_until_their_job_has_been_gone_for_long(
    clock: Clock, record: RankRecord
) -> None:
    shown = Shown(record, dataclasses.replace(record, rank=4, name="b"))
    stages = collector(shown, clock)
    assert completed(stages.collect(), "rollout") == 10
    del shown.records[0]
    assert completed(stages.collect(), "rollout") == 10
    clock.now += 10 * RETIRED_SECONDS
    assert completed(stages.collect(), "rollout") == 10  # a rank of the job is still there
    del shown.records[0]
    assert completed(stages.collect(), "rollout") == 10
    clock.now += RETIRED_SECONDS
    assert completed(stages.collect(), "rollout") == 10
    clock.now += 1
    with pytest.raises(NoData):
        stages.collect()


def test_a_rank_that_exits_between_two_looks_is_counted_whole_and_once(
    python: Python, record_dir: Path, clock: Clock
) -> None:
    """Its record is gone from the directory by then, with the steps made since the last look."""
    script = python.ready(
        """
        import sys, time
        from pathlib import Path
        import stagewatch
        stagewatch.init(job_id=540, rank=0)
        for step in range(20):
            if step == 7:
                print("ready", flush=True)
                while not Path(sys.argv[1]).exists():
                    time.sleep(0.01)
            with stagewatch.stage("rollout", step=step):
                pass
        """,
        record_dir / "go",
        STAGEWATCH_DIR=str(record_dir),
    )
    proc = Procfs()
    with closing(RecordDirectory(record_dir, proc, clock=clock)) as records:
        stages = StagesCollector(RankDirectory(records, clock=clock), boot_clock=clock)
        assert completed(stages.collect(), "rollout") == 7
        (record_dir / "go").touch()
        script.finish()
        counts = []
        for _ in range(10):
            clock.now += LINGER_SECONDS / 4
            counts.append(completed(stages.collect(), "rollout"))
    assert counts == [20] * 10


def test_a_job_can_not_make_more_label_values_than_its_share(
    clock: Clock, record: RankRecord
) -> None:
    ranks = [
        dataclasses.replace(
            record,
            rank=rank,
            name=str(rank),
            failures={("train", f"Error{rank}_{number}"): 1 for number in range(16)},
            first_failure=None,
        )
        for rank in range(20)
    ]
    found = collector(Shown(*ranks), clock).collect()
    assert len(found.families[FAILURES]) == MAX_NAMES + 1
    assert found.value(FAILURES, "540", "train", "train", "other") == 320 - MAX_NAMES


def test_a_job_has_one_name_whatever_its_ranks_say(clock: Clock, record: RankRecord) -> None:
    others = [
        dataclasses.replace(record, rank=rank, name=str(rank), job_name=name, uid=1000)
        for rank, name in enumerate(("sft-7b", "", "grpo-7b"))
    ]
    unnamed = dataclasses.replace(record, job_id="541", name="unnamed", job_name="")
    found = collector(Shown(*others, unnamed), clock).collect()
    assert found.families[JOB] == {("540", "grpo-7b", "1000"): 1}


def test_one_user_fills_neither_the_page_nor_the_places_of_others(
    clock: Clock, record: RankRecord
) -> None:
    """Records without end, each of a job of its own; one of another user has ended before."""
    shown = Shown()
    stages = collector(shown, clock)
    honest = [
        dataclasses.replace(record, job_id=job, name=job, uid=1) for job in ("ended", "lives")
    ]
    shown.records = honest
    stages.collect()
    for number in range(MAX_ROLES_PER_USER):
        clock.now += 1
        many = [
            dataclasses.replace(record, job_id=f"j{number}-{each}", name=f"{number}-{each}", uid=2)
            for each in range(40)
        ]
        shown.records = [*many, honest[1]]
        found = stages.collect()
    jobs = [labels[0] for labels in {labels[:2]: labels for labels in found.families[DURATIONS]}]
    assert {"ended", "lives"} <= set(jobs)
    assert len(jobs) == 2 * MAX_ROLES_PER_USER + 2
    assert (found.value(FOLDED, "role") or 0) > 0


def test_jobs_without_end_do_not_fill_the_agents_memory(
    clock: Clock, record: RankRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RETIRED", 20)
    shown = Shown()
    stages = collector(shown, clock)
    for number in range(30):
        clock.now += 1
        one = dataclasses.replace(record, job_id=f"job{number}", name=str(number), uid=number)
        shown.records = [one]
        found = stages.collect()
    jobs = {labels[0] for labels in found.families[DURATIONS]}
    assert len(jobs) == 21
    assert "job0" not in jobs
    assert "job29" in jobs
