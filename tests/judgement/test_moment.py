"""The facts of a moment, out of the series of a job."""

from __future__ import annotations

import pytest

from stagewatch.judgement.from_prometheus import JobSeries, Labelled, moment
from stagewatch.judgement.judge import judge
from stagewatch.judgement.limits import Shown


@pytest.mark.parametrize("dead", [None, 0, 1])
def test_a_job_is_not_young_because_its_first_rank_has_died(dead: int | None) -> None:
    job = JobSeries()
    for rank in range(3):
        labels = {"role": "train", "rank": str(rank), "node": "n", "stage": "train"}
        sample: Labelled = labels, float(rank != dead)
        job.by["rl_rank_up"].append(sample)
        job.by["rl_rank_stage_open_seconds"].append((labels, 99.0))
        job.by["rl_rank_progress_age_seconds"].append((labels, 99.0))
    job.shown["train"] = {"train": Shown(300, 1.0, 2.0, 2.0)}
    (verdict,) = judge(moment("j", job, 1000.0).ranks)
    assert not verdict.case.young
    assert not verdict.case.never_marked
