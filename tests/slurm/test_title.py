"""What the status page of a cluster is called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stagewatch.slurm.context import SlurmOptions


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
