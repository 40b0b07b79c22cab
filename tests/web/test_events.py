"""The page `/events`: copies of records, bounded in number."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import stagewatch
from stagewatch.faults.markers import Marker, write_marker
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.events import Kind, parse_events
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.web import events
from tests.records import place, real_file


@pytest.fixture
def ranks(record_dir: Path) -> Iterator[RankDirectory]:
    with closing(RecordDirectory(record_dir, Procfs())) as records:
        yield RankDirectory(records, fresh_for=0.0)


def page(ranks: RankDirectory, faults: Path) -> dict[str, Any]:
    content_type, body = events.events_page(ranks, faults, "n1")()
    assert content_type == "application/json"
    found: dict[str, Any] = json.loads(body)
    return found


def test_the_page_has_each_record_with_its_events(
    ranks: RankDirectory, record_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "faults").mkdir()
    write_marker(tmp_path / "faults", Marker("m1", "cpu_hog", 100.0))
    stagewatch.init("train", job_id=7, rank=2, directory=record_dir)
    try:
        stagewatch.heartbeat(5)
        found = page(ranks, tmp_path / "faults")
    finally:
        stagewatch.close()
    assert (found["node"], found["left_out"]) == ("n1", 0)
    assert [fault["id"] for fault in found["faults"]] == ["m1"]
    (rank,) = found["ranks"]
    assert (rank["job_id"], rank["role"], rank["rank"]) == ("7", "train", 2)
    assert rank["life"] == "alive"
    (event,) = parse_events(base64.b64decode(rank["file"]), rank["boot_ns"])
    assert (event.kind, event.step) == (Kind.STEP, 5)


def test_the_page_is_bounded(
    ranks: RankDirectory, record_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = real_file(tmp_path)
    for number in range(1, 6):
        place(record_dir, raw, number)
    monkeypatch.setattr(events, "MAX_RANKS", 2)
    found = page(ranks, tmp_path)
    assert (len(found["ranks"]), found["left_out"]) == (2, 3)
