"""The real PyTorch on this machine's CPU: the figures come, and a wrong result is seen."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from stagewatch.qualify import worker
from stagewatch.qualify.measure import Deadline, ask, meet
from tests.qualify.conftest import Qualify

torch = pytest.importorskip("torch")


def test_this_machine_is_measured(qualify: Qualify) -> None:
    done = qualify("--skip", "clock,storage", "--seconds", "100ms", "--json")
    assert done.returncode == 0, done.stdout
    found = {one["part"]: one for one in json.loads(done.stdout)["results"]}
    assert {part: one["level"] for part, one in found.items()} == dict.fromkeys(
        ("memory", "product", "all_reduce"), "pass"
    )
    assert all(1e6 < one["value"] < 1e15 for one in found.values())


def test_two_processes_meet_and_the_sum_is_right() -> None:
    found = meet(sys.executable, 0, 0.1, Deadline(120))
    assert [one["same"] for one in found] == [True, True]


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    (found,) = ask(sys.executable, "memory", [{"gpu": 63, "seconds": 0.1}], Deadline(120))
    assert "error" in found


def test_the_path_of_a_gpu_synchronises_and_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it goes without one: the device is the CPU's, and CUDA's calls are counted."""
    calls: list[str] = []
    monkeypatch.setattr(worker, "_device", lambda arguments: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (64 << 20, 80 << 30))
    found: dict[str, Any] = worker.memory({"gpu": 0, "seconds": 0.05})
    assert found["same"] and found["value"] > 0
    assert len(calls) >= 4
