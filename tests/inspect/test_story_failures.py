"""What is told of a job that has raised or lost a rank: that it has stopped, or that it goes on."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.inspect.story import Story, tell
from stagewatch.prometheus.api import PrometheusApi
from tests.inspect.past_server import Then
from tests.report.filled import Past, filled_prometheus

NOW = time.time() // 100 * 100 - 3600
JOB = "700"
SILENT = 180.0

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")


class Scene:
    """A job's history, and the sentences it makes."""

    def __init__(self, children: Children, directory: Path) -> None:
        self._children = children
        self._directory = directory
        self.past = Past(NOW - 60, NOW)

    def rank(
        self,
        role: str,
        rank: int,
        age: float = SILENT,
        *,
        stage: str = "idle",
        kind: str = "parked",
        raised: float | None = None,
    ) -> None:
        """One that last moved `age` seconds ago, and raised `raised` seconds ago."""
        who = {"job_id": JOB, "role": role, "rank": rank, "node": "node-a"}
        alive = kind != "gone"
        self.past.add("rl_rank_up", float(alive), **who)
        self.past.add("rl_rank_step", 13.0, **who)
        self.past.add("rl_rank_stage_open_seconds", age, **who, stage=stage)
        self.past.add("rl_rank_wait_class", 1.0, **who, **{"class": kind})
        self.past.add("rl_rank_progress_age_seconds", lambda when: when - (NOW - age), **who)
        if alive and age > 30:
            self.past.add("rank:rl_stall:overdue_seconds", age, **who, stage=stage)
        if raised is not None:
            what = {"stage": "train", "error": "RuntimeError"}
            first = "rl_rank_first_failure_timestamp_seconds"
            self.past.add(first, NOW - raised, **who, **what)

    def rule(self, name: str, role: str, **labels: object) -> None:
        """What a recording rule says of the role."""
        self.past.add(name, 1.0, job_id=JOB, role=role, **labels)

    def tell(self) -> Story:
        api = PrometheusApi(filled_prometheus(self._children, self._directory / "p", self.past))
        story = tell(Then(api, NOW), JOB, NOW)
        api.close()
        return story


@pytest.fixture
def scene(children: Children, tmp_path: Path) -> Scene:
    return Scene(children, tmp_path)


def head(story: Story, role: str) -> str:
    (found,) = [each for each in story.sentences if each.startswith(f"Job {JOB} ({role})")]
    return found


def test_a_job_whose_ranks_all_raised_and_whose_worker_is_gone_has_stopped(scene: Scene) -> None:
    for rank in range(4):
        gone = rank == 3
        scene.rank("rollout", rank, stage="rollout" if gone else "idle",
                   kind="gone" if gone else "parked")  # fmt: skip
    for rank in range(8):
        scene.rank("train", rank, SILENT - rank / 10, raised=SILENT + (rank == 2))
    for role in ("rollout", "train"):
        scene.rule("job:rl_stall:excused", role, excuse="idle")
    story = scene.tell()
    assert head(story, "rollout") == (
        "Job 700 (rollout), 4 ranks on node-a: stopped at step 13: rank 3 on node-a is gone, and "
        "no other rank has completed anything for 3 min."
    )
    assert "Of them 3 are parked in idle, 1 is gone in rollout." in story.sentences
    assert head(story, "train") == (
        "Job 700 (train), 8 ranks on node-a: stopped at step 13: 8 of 8 ranks raised an "
        "exception, rank 2 on node-a first (3 min 1 s ago), and no rank has completed anything for "
        "2 min 59 s."
    )
    assert [each for each in story.sentences if each.startswith("First failure: rank 2 (train)")]
    assert "in progress" not in "\n".join(story.sentences)
    assert "Not called a stall" not in "\n".join(story.sentences)
    assert story.wrong


def test_a_job_that_goes_on_after_an_exception_is_in_progress(scene: Scene) -> None:
    for rank in range(2):
        scene.rank("train", rank, 2.0, stage="train", kind="compute", raised=60.0)
    story = scene.tell()
    assert head(story, "train").endswith(
        "in progress at step 13; every rank has moved within 2.0 s."
    )
    assert [each for each in story.sentences if each.startswith("First failure: ")]
    assert not story.wrong


def test_a_job_that_went_on_after_an_exception_and_idles_now_has_not_failed(scene: Scene) -> None:
    for rank in range(2):
        scene.rank("train", rank, 60.0, raised=600.0)
    scene.rule("job:rl_stall:excused", "train", excuse="idle")
    story = scene.tell()
    assert head(story, "train").endswith(
        "idle at step 13; no rank has completed anything for 1 min."
    )
    assert not story.wrong


def test_a_rank_that_works_on_what_it_caught_is_in_progress(scene: Scene) -> None:
    """Its stage was entered at once after the exception, and is not yet overdue."""
    scene.rank("train", 0, 20.0, stage="train", kind="compute", raised=20.5)
    assert ": in progress at step 13" in head(scene.tell(), "train")


def test_ranks_that_go_on_without_one_that_is_gone_are_told_with_it(scene: Scene) -> None:
    for rank in range(3):
        scene.rank("rollout", rank, 2.0, stage="rollout", kind="compute")
    scene.rank("rollout", 3, stage="rollout", kind="gone")
    story = scene.tell()
    assert head(story, "rollout").endswith(
        "goes on at step 13 although rank 3 on node-a is gone; every other rank has moved within "
        "2.0 s."
    )
    assert story.wrong


def test_a_role_none_of_whose_ranks_lives_is_wrong(scene: Scene) -> None:
    scene.rank("train", 0, kind="gone", raised=SILENT)
    story = scene.tell()
    assert head(story, "train").endswith(
        "no rank of it lives; it was at step 13; rank 0 on node-a raised an exception (3 min ago)."
    )
    assert story.wrong


@pytest.mark.parametrize(("count", "said"), [(1, "1 spins in train"), (2, "2 spin in train")])
def test_one_rank_is_told_of_in_the_singular(scene: Scene, count: int, said: str) -> None:
    for rank in range(count):
        scene.rank("train", rank, 2.0, stage="train", kind="spin")
    assert f"Of them {said}." in scene.tell().sentences
