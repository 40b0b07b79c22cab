"""Work that a trainer counts: by stage, from many threads, in records of any age, in the agent."""

from __future__ import annotations

import stagewatch
from tests.client.conftest import Client


def test_work_belongs_to_the_stage_that_the_thread_is_in(client: Client) -> None:
    with stagewatch.stage("rollout"):
        stagewatch.throughput(tokens=1000, samples=8)
        with stagewatch.stage("train"):
            stagewatch.throughput(tokens=500, flops=2e15)
        stagewatch.throughput(tokens=24)
    assert client.record().work == {"rollout": (1024, 0, 8), "train": (500, 2e15, 0)}


def test_a_stage_may_be_named_and_one_of_another_name_is_other(client: Client) -> None:
    stagewatch.throughput(tokens=1)
    stagewatch.throughput(tokens=2, stage="train")
    stagewatch.throughput(tokens=3, stage="distil")
    assert {stage: work[0] for stage, work in client.record().work.items()} == {
        "idle": 1,
        "train": 2,
        "other": 3,
    }
