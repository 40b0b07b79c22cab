"""What a demo keeps lies beside it, and not where an installed agent keeps its own."""

from __future__ import annotations

import json
from pathlib import Path

from stagewatch.core.config import settings_of
from stagewatch.demo import stack
from stagewatch.demo.sync_stall import RECORDINGS
from stagewatch.node import collector_specs
from stagewatch.node_context import NodeOptions

SHARED = (Path("/var/lib/stagewatch"), Path("/run/stagewatch"))
NEAR_SLOWDOWN = 3
"""Degrees below a GPU's own limit at which an alert fires."""


def test_an_agent_of_the_demo_shares_no_file_with_an_installed_one(tmp_path: Path) -> None:
    settings = [*settings_of(NodeOptions)]
    for spec in collector_specs():
        settings += settings_of(spec.options, f"collector.{spec.name}.")
    shared = {
        setting.flag
        for setting in settings
        if isinstance(setting.default, Path)
        and any(setting.default.is_relative_to(place) for place in SHARED)
    }
    given = {*stack._kept_in(tmp_path), "--record-dir", "--fault-dir"}
    assert shared - given == set()


def test_no_recorded_gpu_is_too_hot() -> None:
    """A critical alert of the demo's that nothing is wrong with would hide the one it shows."""
    for file in RECORDINGS.glob("*.jsonl"):
        gpus = [
            gpu
            for line in file.read_text().splitlines()
            for tier in json.loads(line).get("tiers", {}).values()
            for gpu in tier["gpus"]
        ]
        values = [gpu["values"] for gpu in gpus]
        limit = min(
            each[name] for each in values if (name := "gpu_temperature_slowdown_celsius") in each
        )
        hottest = max(each.get("gpu_temperature_celsius", 0) for each in values)
        assert hottest < limit - NEAR_SLOWDOWN
