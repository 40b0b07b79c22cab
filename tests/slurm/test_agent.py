"""How the Slurm agent is put together."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.core.collector import Collector
from stagewatch.core.config import settings_of
from stagewatch.slurm.agent import COMMAND, collector_specs
from stagewatch.slurm.context import SlurmOptions, exporter, slurm_context


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


@pytest.mark.parametrize("value", ["", "x", "x:0", "x:99999", "9x:1", "x:y"])
def test_exporter_must_have_a_name_and_a_port(value: str) -> None:
    """NAME:PORT."""
    with pytest.raises(ValueError):
        exporter(value)


def test_options_take_what_they_say() -> None:
    """And show it as it would be written."""
    assert str(exporter("node_exporter:9100")) == "node_exporter:9100"
    (api,) = (setting for setting in settings_of(SlurmOptions) if setting.key == "api")
    assert [api.parse(value) for value in ("text", "json", "rest")] == ["text", "json", "rest"]
    with pytest.raises(ValueError):
        api.parse("xml")
