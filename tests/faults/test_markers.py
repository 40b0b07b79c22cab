"""Fault markers: what is written reads back; what others write harms nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.core.errors import NoData, SourceError, StagewatchError
from stagewatch.faults.markers import (
    MAX_BYTES,
    MAX_FILES,
    MAX_MARKERS,
    Marker,
    open_marker,
    parse_marker,
    read_markers,
    write_marker,
)

DOCUMENTED = (
    b'{"fault_injection_start": "2024-11-24T14:30:00Z", "fault_type": "cpu_contention",'
    b' "target_worker": "rollout_worker_8", "expected_failure_stage": "train"}'
)
START = 1732458600.0

line = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=100)
ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", fullmatch=True)
times = st.integers(0, 4_000_000_000_000).map(lambda milliseconds: milliseconds / 1000)
markers = st.builds(
    Marker,
    id=ids,
    fault_type=line,
    start=times,
    end=st.none() | times,
    target_worker=line | st.just(""),
    expected_failure_stage=line | st.just(""),
    scenario=line | st.just(""),
)


def test_the_documented_form() -> None:
    assert parse_marker("f1", DOCUMENTED) == Marker(
        id="f1",
        fault_type="cpu_contention",
        start=START,
        target_worker="rollout_worker_8",
        expected_failure_stage="train",
    )


@given(markers)
def test_what_is_written_reads_back(
    tmp_path_factory: pytest.TempPathFactory, marker: Marker
) -> None:
    directory = tmp_path_factory.mktemp("faults")
    write_marker(directory, marker)
    ((found,), skipped) = read_markers(directory)
    assert found.start == pytest.approx(marker.start, abs=0.002)
    assert (found.end is None) == (marker.end is None)
    assert (found.id, found.fault_type, found.target_worker) == (
        marker.id,
        marker.fault_type,
        marker.target_worker,
    )
    assert not skipped
    assert len(list(directory.iterdir())) == 1  # no draft stays behind


@given(
    st.binary(max_size=400)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["fault_type", "fault_injection_start", "fault_injection_end", "scenario"]
                )
                | st.text(),
                inner,
            )
        ),
    ).map(lambda content: json.dumps(content).encode())
)
def test_any_content_is_a_marker_or_an_error_that_names_the_file(raw: bytes) -> None:
    try:
        parse_marker("f1", raw)
    except SourceError as error:
        assert str(error).startswith("marker f1: ")


def test_no_directory_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(NoData):
        read_markers(tmp_path / "absent")


def test_hostile_files_are_counted_and_harm_nothing(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(DOCUMENTED)
    (tmp_path / "large.json").write_bytes(DOCUMENTED + b" " * MAX_BYTES)
    (tmp_path / "noise.json").write_bytes(os.urandom(100))
    (tmp_path / "secret").write_bytes(DOCUMENTED)
    (tmp_path / "link.json").symlink_to(tmp_path / "secret")
    (tmp_path / "directory.json").mkdir()
    (tmp_path / "sp ace.json").write_bytes(DOCUMENTED)
    (tmp_path / "line\nbreak.json").write_bytes(DOCUMENTED)
    (tmp_path / ".json").write_bytes(DOCUMENTED)
    (tmp_path / "README").write_text("ignored")
    os.mkfifo(tmp_path / "fifo.json")
    found, skipped = read_markers(tmp_path)
    assert [marker.id for marker in found] == ["good"]
    assert skipped == {"invalid": 4, "unreadable": 1, "name": 3}


def test_only_so_many_markers_are_read(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 10):
        (tmp_path / f"{number:04}.json").write_bytes(DOCUMENTED if number < MAX_MARKERS else b"{")
    found, skipped = read_markers(tmp_path)
    assert len(found) == MAX_MARKERS
    assert skipped == {"invalid": MAX_FILES - MAX_MARKERS, "too_many": 10}


@pytest.mark.parametrize("id", ["", "../x", "a/b", ".hidden", "a b", "x" * 101, "a\n", "é"])
def test_an_id_that_is_no_file_name_is_refused(id: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="must be letters, digits"):
        write_marker(tmp_path, Marker(id=id, fault_type="x", start=0.0))
    assert list(tmp_path.iterdir()) == []


def test_an_open_marker_is_seen_and_closed_however_many_are_closed(tmp_path: Path) -> None:
    for number in range(MAX_MARKERS + 5):
        write_marker(tmp_path, Marker(f"a{number}", "x", start=number, end=number + 0.5))
    write_marker(tmp_path, Marker("z", "x", start=0.0))
    found, skipped = read_markers(tmp_path)
    assert "z" in {marker.id for marker in found} and len(found) == MAX_MARKERS
    assert skipped == {"too_many": 6}
    open_marker(Marker("new", "x", start=1e9), tmp_path)
    assert {"z", "new"} <= {marker.id for marker in read_markers(tmp_path)[0]}
    assert len(list(tmp_path.iterdir())) == MAX_MARKERS + 6, "the longest closed one gives way"


def test_a_fault_too_many_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """It would be invisible: as many open ones as are told of."""
    for number in range(MAX_MARKERS):
        write_marker(tmp_path, Marker(f"a{number}", "x", start=number))
    with pytest.raises(StagewatchError, match=r"256 faults are open: close some \(stagewatch"):
        open_marker(Marker("new", "x", start=1e9), tmp_path)
    assert len(list(tmp_path.iterdir())) == MAX_MARKERS
