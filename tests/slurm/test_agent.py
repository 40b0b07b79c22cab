"""How the Slurm agent is put together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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


def test_the_status_page_is_called_after_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SlurmOptions(cluster_name="hyper").title() == "Cluster hyper"
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=Lab\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    assert SlurmOptions().title() == "Cluster lab"
    conf.write_text("")
    assert SlurmOptions().title() == os.uname().nodename
