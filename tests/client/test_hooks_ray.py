"""Ray's worker set-up hook, in a real Ray cluster."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.client.hooking import frameworks_path, needs, run_job

needs("ray")


def test_workers_are_hooked_and_know_who_they_are(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-") as directory:  # its sockets want a short path
        report = run_job(
            "ray_cluster",
            tmp_path,
            path=frameworks_path("verl"),
            SLURM_JOB_ID="540",  # of the step that started Ray, as is its SLURM_PROCID
            SLURM_PROCID="3",
            SLURM_NTASKS="4",
            RAY_DIRECTORY=directory,
            RAY_AUTH_MODE="disabled",
            RAY_USAGE_STATS_ENABLED="0",
        )
    assert report["worker"] == ["540", "train", 5, 8, "verl"]
    assert report["controller"] == ["540", "controller", 0, None, "verl"]
