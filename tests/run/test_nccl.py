"""What `stagewatch run --nccl` sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.core.errors import ConfigError
from stagewatch.ranks.nccl.collector import InspectorOptions
from stagewatch.run.command import INSPECTOR, LIBRARY, nccl
from stagewatch_nccl import LIBRARY as BUILT


def test_our_plugin_is_found_by_its_package_once_it_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert BUILT.name == LIBRARY
    (tmp_path / "stagewatch_nccl").mkdir()
    (tmp_path / "stagewatch_nccl" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "stagewatch_nccl")
    with pytest.raises(ConfigError, match=f"{LIBRARY} is not a file"):
        nccl("stagewatch")
    (tmp_path / "stagewatch_nccl" / LIBRARY).touch()
    assert nccl("stagewatch") == {
        "NCCL_PROFILER_PLUGIN": str(tmp_path / "stagewatch_nccl" / LIBRARY)
    }


def test_inspector_writes_where_the_collector_reads(tmp_path: Path) -> None:
    file = tmp_path / "libnccl-profiler-inspector.so"
    file.touch()
    assert nccl(str(file)) == {**INSPECTOR, "NCCL_PROFILER_PLUGIN": str(file)}
    assert INSPECTOR["NCCL_INSPECTOR_DUMP_DIR"] == str(InspectorOptions().dir)
