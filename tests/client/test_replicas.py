"""Checks of what ranks must have alike, in the record and on the page of an agent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import stagewatch
from stagewatch.ranks.replicas import CHECK, NOT_FINITE, ReplicasCollector
from tests.client.hooking import record
from tests.records import Shown


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    stagewatch.init("train", job_id=540, rank=3, gpu="GPU-d", directory=tmp_path)
    yield tmp_path
    stagewatch.close()


def shown(directory: Path) -> dict[tuple[str, ...], float]:
    """The checks by group, name and slot."""
    out = ReplicasCollector(Shown(record(directory))).collect()  # type: ignore[arg-type]
    return {labels[4:]: value for labels, value in out.families.get(CHECK, {}).items()}  # type: ignore[misc]


def test_a_check_tells_its_step_and_a_checksum(directory: Path) -> None:
    stagewatch.replicated("grad_norm", 0.5, step=7)
    ((labels, value),) = shown(directory).items()
    assert labels == ("world", "grad_norm", "1")
    assert int(value) >> 32 == 7
    stagewatch.replicated("grad_norm", math.nextafter(0.5, 1), step=7)
    (other,) = shown(directory).values()
    assert other != value
    assert int(other) >> 32 == 7


def test_slow_slots_stand_still_while_steps_go_on(directory: Path) -> None:
    for step in range(1, 300):
        stagewatch.replicated("loss", step, group="dp", step=step)
    steps = {every: int(value) >> 32 for (_, _, every), value in shown(directory).items()}
    assert steps == {"1": 299, "16": 288, "256": 256}


def test_calls_are_counted_where_nobody_tells_the_step(directory: Path) -> None:
    first = None
    for _ in range(3):
        stagewatch.replicated("counted", b"abc")
        (value,) = shown(directory).values()
        first = first or int(value) >> 32
    assert int(value) >> 32 == first + 2 if first else False


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (1, 1, True),
        (1, 2, False),
        (0.0, -0.0, False),
        (math.nan, -math.nan, True),
        ("a", "b", False),
        (b"\0" * 9, bytearray(9), True),
        (2**70, 2**70 + 1, False),
    ],
)
def test_values_are_compared_bit_by_bit(
    one: object, other: object, alike: bool, directory: Path
) -> None:
    values = []
    for value in (one, other):
        stagewatch.replicated("x", value, step=1)
        values += shown(directory).values()
    assert (values[0] == values[1]) is alike


@pytest.mark.parametrize("value", [object(), [1, 2]])
def test_what_cannot_be_checked_harms_nobody(value: object, directory: Path) -> None:
    stagewatch.replicated("x", value)
    stagewatch.replicated("n" * 60, 1)
    stagewatch.watch_replicas(value, value)()
    assert not record(directory).replicas


def test_a_record_without_checks_has_none_and_odd_ones_are_passed_over(directory: Path) -> None:
    """As other clients write it, and as anybody may."""
    for name, value in (
        ("replica/1/x", 1.0),
        ("replica/7/x@world", 1.0),
        ("replica/1/neg@world", -1.0),
        ("replica/1/inf@world", math.inf),
        ("replica/nonfinite", math.nan),
        ("replica/1/good@world", 2.0**32),
    ):
        stagewatch.scalar(name, value)
    assert shown(directory) == {("world", "good", "1"): 2.0**32}


def test_the_first_step_of_a_gradient_that_is_not_finite_is_shown(directory: Path) -> None:
    stagewatch.scalar("replica/nonfinite", 37)
    out = ReplicasCollector(Shown(record(directory))).collect()  # type: ignore[arg-type]
    assert out.value(NOT_FINITE, "540", "train", "3", "GPU-d") == 37


class TestTorch:
    """One process; the job of four is in test_replicas_gloo."""

    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return pytest.importorskip("torch", reason="torch is not installed: make test-frameworks")

    @pytest.mark.parametrize("kind", ["bfloat16", "complex64"])
    def test_every_single_bit_changes_the_checksum(self, torch: Any, kind: str) -> None:
        from stagewatch.client._replicas import _Watch

        watch = _Watch(torch, [], None, 1, "world")
        torch.manual_seed(1)
        values = [torch.randn(3, 5).to(getattr(torch, kind)), torch.zeros(0), torch.ones(1)]
        whole = watch._checksum(values)
        raw = values[0].view(torch.uint8)
        for byte in range(raw.numel()):
            for bit in range(8):
                raw.view(-1)[byte] ^= 1 << bit
                assert watch._checksum(values) != whole
                raw.view(-1)[byte] ^= 1 << bit
        assert watch._checksum(values) == whole

    def test_watching_ends(self, torch: Any, directory: Path) -> None:
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        end = stagewatch.watch_replicas(model, optimizer, every=1)
        model(torch.ones(4)).sum().backward()
        optimizer.step()
        before = dict(record(directory).replicas)
        assert before
        end()
        model(torch.ones(4)).sum().backward()
        optimizer.step()
        assert record(directory).replicas == before

    def test_the_first_gradient_that_is_not_finite_is_told_at_the_next_check(
        self, torch: Any, directory: Path
    ) -> None:
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        stagewatch.watch_replicas(model, optimizer, every=4)
        for step in range(1, 9):
            model(torch.full((4,), math.inf if step == 6 else 1.0)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert record(directory).replicas["replica/nonfinite"] == 6
