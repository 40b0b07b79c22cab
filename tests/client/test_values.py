"""Scalars, counts of collectives, and work by stage."""

from __future__ import annotations

import stagewatch
from stagewatch.record import COLLECTIVES, SCALARS
from tests.client.conftest import Client


def test_what_finds_no_room_is_counted_and_the_rest_goes_on(client: Client) -> None:
    for number in range(SCALARS + 5):
        stagewatch.scalar(f"loss_of_layer_{number}", number)
    for number in range(COLLECTIVES + 2):
        for _ in range(3):
            stagewatch.collective(f"group_{number}")
    record = client.record()
    assert len(record.scalars) == SCALARS
    assert len(record.collectives) == COLLECTIVES
    assert record.collectives["group_0"] == 3
    assert record.dropped == 5 + 2 * 3
    stagewatch.scalar("loss_of_layer_0", 9.0)
    assert client.record().scalars["loss_of_layer_0"] == 9.0


def test_work_belongs_to_the_stage_that_is_named_or_that_the_thread_is_in(client: Client) -> None:
    with stagewatch.stage("rollout"):
        stagewatch.throughput(tokens=1000, samples=8)
        with stagewatch.stage("train"):
            stagewatch.throughput(tokens=500, flops=2e15)
        stagewatch.throughput(tokens=24)
    stagewatch.throughput(tokens=1)
    stagewatch.throughput(tokens=2, stage="train")
    stagewatch.throughput(tokens=3, stage="distil")
    assert client.record().work == {
        "rollout": (1024, 0, 8),
        "train": (502, 2e15, 0),
        "idle": (1, 0, 0),
        "other": (3, 0, 0),
    }
