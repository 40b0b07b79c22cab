"""Names that users choose: bounded per job, and counted where they are left out."""

from __future__ import annotations

from stagewatch.core.exposition import Samples
from stagewatch.ranks.vocabulary import FOLDED, MAX_JOBS, MAX_NAMES, Vocabulary


def test_the_first_names_of_a_job_are_kept_and_the_rest_is_counted() -> None:
    names = Vocabulary()
    admitted = [names.admits("scalar", "7", "train", f"s{i}") for i in range(10_000)]
    assert admitted == [True] * MAX_NAMES + [False] * (10_000 - MAX_NAMES)
    assert names.admits("scalar", "7", "train", "s0"), "what is known stays"
    out = Samples()
    names.show(out)
    assert out.value(FOLDED, "scalar") == 10_000 - MAX_NAMES


def test_one_jobs_names_take_nothing_from_another() -> None:
    names = Vocabulary()
    for i in range(MAX_NAMES + 1):
        names.admits("scalar", "7", "train", f"s{i}")
    assert names.admits("scalar", "8", "train", "reward")
    assert names.admits("scalar", "7", "rollout", "reward")
    assert names.admits("group", "7", "train", "world")


def test_jobs_that_ended_are_forgotten_in_the_end() -> None:
    names = Vocabulary()
    for i in range(MAX_NAMES):
        names.admits("scalar", "old", "train", f"s{i}")
    for job in range(MAX_JOBS):
        names.admits("scalar", str(job), "train", "reward")
    assert names.admits("scalar", "old", "train", "new")
