"""Scalars and collectives."""

from __future__ import annotations

import stagewatch
from stagewatch.record import COLLECTIVES, SCALARS
from tests.client.conftest import Client


def test_the_last_value_of_a_scalar_is_published(client: Client) -> None:
    for value in (0.1, 0.2, 0.3):
        stagewatch.scalar("reward", value)
    stagewatch.scalar("kl", 5)
    assert client.record().scalars == {"reward": 0.3, "kl": 5.0}


def test_collectives_are_counted_per_process_group(client: Client) -> None:
    for _ in range(220):
        stagewatch.collective()
    stagewatch.collective("tensor-parallel")
    assert client.record().collectives == {"world": 220, "tensor-parallel": 1}


def test_what_finds_no_room_is_counted_and_the_rest_goes_on(client: Client) -> None:
    for number in range(SCALARS + 5):
        stagewatch.scalar(f"loss_of_layer_{number}", number)
    for number in range(COLLECTIVES + 2):
        stagewatch.collective(f"group_{number}")
    record = client.record()
    assert len(record.scalars) == SCALARS
    assert len(record.collectives) == COLLECTIVES
    assert record.dropped == 7
    stagewatch.scalar("loss_of_layer_0", 9.0)
    assert client.record().scalars["loss_of_layer_0"] == 9.0
