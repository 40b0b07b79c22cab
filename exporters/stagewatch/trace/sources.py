"""Copies records with their rings: those of this node, or from the page `/events` of an agent."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagewatch.core import state_file
from stagewatch.core.access import Access
from stagewatch.core.agent_page import fetch
from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.words import printable
from stagewatch.faults.markers import Marker, read_markers
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.records import CorruptRecord, Life, Recording, parse

MAX_PAGE = 32 << 20
"""Bytes of an agent's page; one of as many records as it may have takes 16 MB."""
MAX_PARTS = 1 << 18
"""Commas and opening brackets of a page: 60 MB of empty lists would take 1.7 GB of memory."""


@dataclass(frozen=True, slots=True)
class Node:
    """The records of one node."""

    name: str
    recordings: tuple[Recording, ...]
    faults: tuple[Marker, ...]
    left_out: int = 0
    """Records that found no room on the agent's page."""

    def jobs(self) -> set[str]:
        """The jobs that have a record there."""
        return {recording.record.job_id for recording in self.recordings}


def this_node(ranks: RankDirectory, fault_dir: Path, name: str) -> Node:
    """This node's records.  Raises `SourceError` if the record directory cannot be read."""
    copies = [ranks.recording(record) for record in ranks.look().records]
    try:
        faults = read_markers(fault_dir)[0]
    except (NoData, SourceError):
        faults = []
    kept = [
        _recording(copy.raw, copy.boot_ns, copy.wall_ns, copy.record.life)
        for copy in copies
        if copy is not None
    ]
    return Node(name, tuple(filter(None, kept)), tuple(faults))


def node_of(url: str, access: Access, timeout: float) -> Node:
    """The records on an agent's page.  Raises `SourceError` that names the agent."""
    try:
        return read_page(fetch(url, "/events", access, timeout, MAX_PAGE))
    except SourceError as error:
        raise SourceError(f"{url}: {error}") from error


def read_page(raw: bytes) -> Node:
    """The records on an agent's page.  Raises `SourceError` if another version made it."""
    try:
        if sum(map(raw.count, (b",", b"[", b"{"))) > MAX_PARTS:
            raise ValueError("it has too many parts")
        page = state_file.parse(raw)
        return Node(
            printable(state_file.text(page["node"]), 64),
            tuple(_recordings(page["ranks"])),
            tuple(_marker(**fault) for fault in page["faults"]),
            state_file.whole(page["left_out"]),
        )
    except state_file.BROKEN as error:
        raise SourceError("its page /events is not one of this version") from error


def _marker(*, start: Any, end: Any, **texts: Any) -> Marker:
    checked = {name: state_file.text(value) for name, value in texts.items()}
    ended = state_file.optional(state_file.moment)(end)
    return Marker(start=state_file.moment(start), end=ended, **checked)


def _recordings(ranks: list[dict[str, Any]]) -> Iterator[Recording]:
    for one in ranks:
        raw = base64.b64decode(one["file"], validate=True)
        boot, wall = state_file.whole(one["boot_ns"]), state_file.whole(one["wall_ns"])
        recording = _recording(raw, boot, wall, Life(one["life"]))
        if recording is not None:
            yield recording


def _recording(raw: bytes, boot_ns: int, wall_ns: int, life: Life) -> Recording | None:
    """A copy with the record from the moment when its events were copied."""
    try:
        record = parse(raw)
    except CorruptRecord:
        return None
    return Recording(dataclasses.replace(record, life=life), raw, boot_ns, wall_ns)
