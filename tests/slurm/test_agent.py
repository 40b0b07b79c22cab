"""How the Slurm agent is put together."""

from __future__ import annotations

from pathlib import Path

from stagewatch.core.collector import Collector
from stagewatch.slurm.agent import COMMAND, collector_specs
from stagewatch.slurm.context import SlurmOptions, slurm_context


def test_every_collector_is_built_and_named_after_slurm(tmp_path: Path) -> None:
    """Only the steps are off unless enabled."""
    context = slurm_context(SlurmOptions(state_dir=tmp_path))
    for spec in collector_specs():
        defaults = {setting.key: setting.default for setting in spec.settings()}
        collector = spec.make(defaults, context)
        assert isinstance(collector, Collector)
        collector.close()
        assert spec.name.startswith("slurm_")
        assert spec.default is (spec.name != "slurm_steps")
    assert COMMAND.name == "slurm"
    assert set(COMMAND.routes(context)) == {"/sd", "/sd/stagewatch"}
