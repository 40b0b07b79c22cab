"""`stagewatch fault`: markers on disk, and regions in Grafana that are never lost."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.faults import command, outbox
from stagewatch.faults.markers import Marker, close_marker, read_markers, write_marker
from tests.faults.fake_grafana import TOKEN, FakeGrafana

Fault = Callable[..., str]


@pytest.fixture
def grafana(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGrafana]:
    """A Grafana that the command finds in its environment."""
    fake = FakeGrafana()
    monkeypatch.setenv("STAGEWATCH_GRAFANA_URL", fake.url)
    monkeypatch.setenv("STAGEWATCH_GRAFANA_TOKEN", TOKEN)
    yield fake
    fake.close()


@pytest.fixture
def fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Fault:
    """Runs `stagewatch fault ...`; returns what it printed, and lets it not wait."""
    (tmp_path / "faults").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(outbox, "PAUSES", (0.0, 0.0, 0.0))

    def run(*argv: str) -> str:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        arguments = parser.parse_args([*argv, "--fault-dir", str(tmp_path / "faults")])
        assert command.run(arguments) == 0
        return "".join(capsys.readouterr())

    return run


def markers(tmp_path: Path) -> list[Marker]:
    return read_markers(tmp_path / "faults")[0]


def kept(tmp_path: Path) -> list[str]:
    return sorted(path.stem for path in (tmp_path / "state").rglob("*.json"))


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
    assert kept(tmp_path) == []


def test_list_shows_open_and_closed_markers(fault: Fault) -> None:
    fault("mark", "network_delay", "--id", "first")
    fault("mark", "nfs_full", "--id", "second")
    fault("clear", "first")
    lines = fault("list").splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["first", "closed"], ["second", "open"]]
    assert [each["id"] for each in json.loads(fault("list", "--json"))] == ["first", "second"]


def test_clear_all_closes_what_is_open(fault: Fault, tmp_path: Path) -> None:
    fault("mark", "a", "--id", "one")
    fault("mark", "b", "--id", "two")
    assert set(fault("clear", "--all").split()) == {"one", "two"}
    assert all(marker.end is not None for marker in markers(tmp_path))


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


def test_a_hostile_type_makes_a_harmless_name(fault: Fault, tmp_path: Path) -> None:
    fault("mark", "../../etc/passwd\n")
    (marker,) = markers(tmp_path)
    assert "/" not in marker.id and not marker.id.startswith(".")


def test_a_fault_becomes_a_region_in_grafana(
    fault: Fault, grafana: FakeGrafana, tmp_path: Path
) -> None:
    fault("mark", "cpu_contention", "--id", "x7", "--target", "rollout_8", "--stage", "train")
    (annotation,) = grafana.annotations.values()
    (marker,) = markers(tmp_path)
    assert abs(annotation["time"] - marker.start * 1000) <= 1
    assert annotation["tags"] == [
        "stagewatch",
        "id:x7",
        "fault:cpu_contention",
        "target:rollout_8",
    ]
    assert annotation["text"] == (
        "Injected: cpu_contention on rollout_8, expected to surface in train"
    )
    fault("clear", "x7")
    end = markers(tmp_path)[0].end or 0
    assert abs(annotation["timeEnd"] - end * 1000) <= 1
    assert kept(tmp_path) == []


def test_the_token_can_be_in_a_file(
    fault: Fault, grafana: FakeGrafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STAGEWATCH_GRAFANA_TOKEN")
    with pytest.raises(ConfigError, match="needs a token"):
        fault("list")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    fault("mark", "a", "--grafana-token-file", str(tmp_path / "token"))
    assert len(grafana.annotations) == 1


def test_a_passing_failure_is_tried_again(fault: Fault, grafana: FakeGrafana) -> None:
    grafana.fail = [503, 502]
    assert "kept" not in fault("mark", "a", "--id", "x")
    assert len(grafana.annotations) == 1


def test_an_answer_that_is_lost_does_not_make_two_annotations(
    fault: Fault, grafana: FakeGrafana, tmp_path: Path
) -> None:
    grafana.lose = 1
    fault("mark", "a", "--id", "x")
    assert list(grafana.annotations) == [1]
    fault("clear", "x")
    assert "timeEnd" in grafana.annotations[1] and kept(tmp_path) == []


def test_what_grafana_was_not_told_is_kept_and_told_later(
    fault: Fault, grafana: FakeGrafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grafana.close()
    assert "kept for later: x:" in fault("mark", "a", "--id", "x")
    assert "kept for later: x:" in fault("clear", "x")
    assert kept(tmp_path) == ["x"]
    back = FakeGrafana()
    try:
        monkeypatch.setenv("STAGEWATCH_GRAFANA_URL", back.url)
        fault("list")
        (annotation,) = back.annotations.values()
        assert annotation["timeEnd"] >= annotation["time"]
    finally:
        back.close()
    assert kept(tmp_path) == []


def test_a_refused_token_loses_nothing_and_is_not_hammered(
    fault: Fault, grafana: FakeGrafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEWATCH_GRAFANA_TOKEN", "expired")
    assert "answered 401" in fault("mark", "a", "--id", "x")
    assert grafana.requests == ["POST"] and kept(tmp_path) == ["x"]
    monkeypatch.setenv("STAGEWATCH_GRAFANA_TOKEN", TOKEN)
    fault("list")
    assert len(grafana.annotations) == 1


def test_an_annotation_that_somebody_deleted_is_let_go(
    fault: Fault, grafana: FakeGrafana, tmp_path: Path
) -> None:
    fault("mark", "a", "--id", "x")
    grafana.annotations.clear()
    assert "kept" not in fault("clear", "x")
    assert kept(tmp_path) == []


def test_a_marker_that_another_program_closes_is_closed_in_grafana_too(
    fault: Fault, grafana: FakeGrafana, tmp_path: Path
) -> None:
    fault("mark", "a", "--id", "x")
    (marker,) = markers(tmp_path)
    close_marker(tmp_path / "faults", marker, marker.start + 5)
    fault("list")
    assert abs(grafana.annotations[1]["timeEnd"] - (marker.start + 5) * 1000) <= 1
    assert kept(tmp_path) == []


def test_a_marker_of_another_program_becomes_a_whole_region_when_cleared(
    fault: Fault, grafana: FakeGrafana, tmp_path: Path
) -> None:
    write_marker(tmp_path / "faults", Marker(id="theirs", fault_type="a", start=1000.0))
    fault("clear", "theirs")
    (annotation,) = grafana.annotations.values()
    assert annotation["time"] == 1_000_000 < annotation["timeEnd"]


def test_rubbish_in_the_outbox_harms_nothing(
    fault: Fault, grafana: FakeGrafana, tmp_path: Path
) -> None:
    place = tmp_path / "state" / "stagewatch" / "annotations"
    place.mkdir(parents=True)
    (place / "bad.json").write_text("{")
    (place / "link.json").symlink_to("/etc/passwd")
    (place / "more.json").write_text('{"marker": {"id": "x"}, "surprise": 1}')
    fault("mark", "a", "--id", "fine")
    assert len(grafana.annotations) == 1
