"""What a demo keeps lies beside it, and not where an installed agent keeps its own."""

from __future__ import annotations

from pathlib import Path

from stagewatch.core.config import settings_of
from stagewatch.demo import stack
from stagewatch.node import collector_specs
from stagewatch.node_context import NodeOptions

SHARED = (Path("/var/lib/stagewatch"), Path("/run/stagewatch"))


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
