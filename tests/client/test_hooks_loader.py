"""Waiting for batches of a real PyTorch DataLoader, as the record of the job tells it."""

from __future__ import annotations

from pathlib import Path

from tests.client.hooking import needs, run_job

needs("torch")


def test_waiting_for_batches_counts_and_other_work_does_not(tmp_path: Path) -> None:
    report = run_job("loading", tmp_path)
    assert 0 < report["data"] <= report["waited"] <= report["not_model"]
