"""`stagewatch fault`: markers that are opened, listed and closed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.faults import command
from stagewatch.faults.markers import Marker, read_markers

Fault = Callable[..., str]


@pytest.fixture
def fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Fault:
    """Runs `stagewatch fault ...`; returns what it printed."""
    (tmp_path / "faults").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*argv: str) -> str:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        arguments = parser.parse_args([*argv, "--fault-dir", str(tmp_path / "faults")])
        assert command.run(arguments) == 0
        return "".join(capsys.readouterr())

    return run


def markers(tmp_path: Path) -> list[Marker]:
    return read_markers(tmp_path / "faults")[0]


def test_mark_writes_the_marker_and_clear_gives_it_an_end(fault: Fault, tmp_path: Path) -> None:
    said = fault(
        "mark", "cpu_contention", "--target", "rollout_8", "--stage", "train", "--scenario", "S1"
    )
    (marker,) = markers(tmp_path)
    assert said.strip() == marker.id
    assert marker.fault_type == "cpu_contention" and marker.end is None
    assert (marker.target_worker, marker.expected_failure_stage) == ("rollout_8", "train")
    assert fault("clear", marker.id).strip() == marker.id
    assert (markers(tmp_path)[0].end or 0) >= marker.start
    assert "has been closed before" in fault("clear", marker.id)


def test_list_shows_open_and_closed_markers(fault: Fault) -> None:
    fault("mark", "network_delay", "--id", "first")
    fault("mark", "nfs_full", "--id", "second")
    fault("clear", "first")
    lines = fault("list").splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["first", "closed"], ["second", "open"]]
    assert [each["id"] for each in json.loads(fault("list", "--json"))] == ["first", "second"]


def test_a_taken_id_an_unknown_id_and_a_bad_one_are_refused(fault: Fault) -> None:
    fault("mark", "a", "--id", "one")
    with pytest.raises(StagewatchError, match="already"):
        fault("mark", "a", "--id", "one")
    with pytest.raises(StagewatchError, match="no marker two"):
        fault("clear", "two")
    for bad in ("../x", ".hidden", "a/b", "", "x" * 65, "a\nb"):
        if bad:
            with pytest.raises(ConfigError, match="--id"):
                fault("mark", "a", "--id", bad)
