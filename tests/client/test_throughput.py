"""Work that a trainer counts: by stage, from many threads, in records of any age, in the agent."""

from __future__ import annotations

import math
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagewatch
from stagewatch.client import _api
from stagewatch.ranks.records import parse
from stagewatch.record import BATCHES_END, RECORD_SIZE, WORK_AT
from stagewatch.stages import STAGES
from tests.client.conftest import Client
from tests.records import real_file


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


def test_without_a_record_nothing_happens() -> None:
    assert _api._recorder is None
    stagewatch.throughput(tokens=1)


def test_threads_lose_nothing_of_each_other(client: Client) -> None:
    def work() -> None:
        for _ in range(2000):
            stagewatch.throughput(tokens=1, samples=2, stage="rollout")

    threads = [threading.Thread(target=work) for _ in range(12)]  # more than there are lanes
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.record().work == {"rollout": (24_000, 0, 48_000)}


@given(st.binary(min_size=BATCHES_END - WORK_AT, max_size=BATCHES_END - WORK_AT))
def test_any_bytes_are_read(real: bytes, noise: bytes) -> None:
    assert set(parse(real[:RECORD_SIZE], noise).work) <= set(STAGES)


def test_a_stage_without_a_positive_amount_is_absent(real: bytes) -> None:
    size = len(STAGES) * 3
    noise = [math.nan, -math.inf, -1.0] * (size // 3)
    raw = real[:WORK_AT] + struct.pack(f"<{size}d", *noise) + real[WORK_AT + size * 8 :]
    assert parse(raw).work == {}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return real_file(tmp_path_factory.mktemp("ranks"))
