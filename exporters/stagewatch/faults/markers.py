"""Fault markers: small JSON files that say which fault is injected, and where.

    {"fault_injection_start": "2024-11-24T14:30:00Z", "fault_type": "cpu_contention",
     "target_worker": "rollout_worker_8", "expected_failure_stage": "train"}

`fault_injection_end` closes a marker; `scenario` groups several.  The file's name is the id.
Members of a group may write them, so they are read with limits; a file whose name is not an id is
skipped.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from stagewatch.core.config import moment
from stagewatch.core.descriptors import closing
from stagewatch.core.errors import ConfigError, NoData, SourceError, StagewatchError
from stagewatch.core.files import write_atomically
from stagewatch.core.words import printable
from stagewatch.host.mounts import mount_id, pin, reopen

MAX_MARKERS = 256
"""The most markers that are shown at once: open ones first, then the latest."""
MAX_FILES = 4096
"""The most files that are read."""
MAX_BYTES = 16 * 1024
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})\.json")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Marker:
    """One injected fault.  Times are Unix seconds; an open marker has no `end`."""

    id: str
    fault_type: str
    start: float
    end: float | None = None
    target_worker: str = ""
    expected_failure_stage: str = ""
    scenario: str = ""

    def active(self, now: float) -> bool:
        """Whether the fault is being injected at that time."""
        return self.start <= now and (self.end is None or now < self.end)


def parse_marker(id: str, raw: bytes) -> Marker:
    """The marker in a file's bytes.  Raises `SourceError` with the id and the problem."""
    try:
        content = json.loads(raw)
        if not isinstance(content, dict):
            raise ValueError("must be a JSON object")
        end = content.get("fault_injection_end")
        return Marker(
            id=id,
            fault_type=_text(content, "fault_type", required=True),
            start=moment(_text(content, "fault_injection_start", required=True)),
            end=None if end is None else moment(str(end)),
            target_worker=_text(content, "target_worker"),
            expected_failure_stage=_text(content, "expected_failure_stage"),
            scenario=_text(content, "scenario"),
        )
    except (ValueError, OverflowError, OSError, RecursionError) as error:
        raise SourceError(f"marker {id}: {error}") from error


def read_markers(directory: Path) -> tuple[list[Marker], Counter[str]]:
    """All markers by start time, and the number of skipped files by reason.

    Raises `NoData` if the directory is missing, `SourceError` if it cannot be listed.
    """
    skipped: Counter[str] = Counter()
    markers: list[Marker] = []
    looked_at = 0
    try:
        names = sorted(os.listdir(directory))  # noqa: PTH208
    except FileNotFoundError as error:
        raise NoData(f"{directory} does not exist") from error
    except OSError as error:
        raise SourceError(f"{directory}: {error.strerror}") from error
    for name in names:
        match = _NAME.fullmatch(name)
        if not match:
            if name.endswith(".json"):
                skipped["name"] += 1
            continue
        if looked_at >= MAX_FILES:
            skipped["too_many"] += 1
            continue
        looked_at += 1
        try:
            markers.append(parse_marker(match[1], _read(directory / name)))
        except SourceError:
            skipped["invalid"] += 1
        except OSError:
            skipped["unreadable"] += 1
    markers.sort(key=lambda marker: (marker.end is None, marker.start))
    if len(markers) > MAX_MARKERS:
        skipped["too_many"] += len(markers) - MAX_MARKERS
        del markers[:-MAX_MARKERS]
    return sorted(markers, key=lambda marker: marker.start), skipped


def write_marker(directory: Path, marker: Marker) -> Path:
    """Write or replace a marker; readers see the old or the new one, never half of it.

    Raises `SourceError` for an id that cannot be a file's name, `OSError` if none can be made.
    """
    if not _NAME.fullmatch(f"{marker.id}.json"):
        raise SourceError(
            f"marker id {marker.id!r}: must be letters, digits and . _ - (at most 100, beginning "
            "with a letter or digit)"
        )
    content = {
        "fault_injection_start": _iso(marker.start),
        "fault_type": marker.fault_type,
        "target_worker": marker.target_worker,
        "expected_failure_stage": marker.expected_failure_stage,
        "scenario": marker.scenario,
    }
    if marker.end is not None:
        content["fault_injection_end"] = _iso(marker.end)
    target = directory / f"{marker.id}.json"
    write_atomically(target, json.dumps(content).encode(), mode=0o644, durable=False)
    return target


def close_marker(directory: Path, marker: Marker, end: float) -> None:
    """Record when the fault ended."""
    write_marker(directory, replace(marker, end=end))


def _read(path: Path) -> bytes:
    """The content, unless a file system is mounted there, which might not answer."""
    with (
        closing(os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as directory,
        closing(pin(Path(path.name), dir_fd=directory)) as pinned,
    ):
        if mount_id(pinned) != mount_id(directory):
            raise SourceError(f"{path.name} is a mount")
        fd = reopen(pinned, os.O_RDONLY | os.O_NONBLOCK)
    with closing(fd):
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise SourceError(f"{path.name} is not a file")
        raw = os.read(fd, MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise SourceError(f"{path.name} is larger than {MAX_BYTES} bytes")
        return raw


def _text(content: dict[str, object], key: str, *, required: bool = False) -> str:
    value = content.get(key, "")
    if not isinstance(value, str) or (required and not value):
        raise ValueError(f"{key} must be a string")
    return printable(value, 128)


def _iso(when: float) -> str:
    return datetime.fromtimestamp(when, timezone.utc).isoformat(timespec="milliseconds")


def new_id(fault_type: str, now: float) -> str:
    """A name for a marker, from its type and time."""
    stamp = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    kind = re.sub(r"[^A-Za-z0-9._-]+", "_", fault_type)[:32].strip("._-") or "fault"
    return f"{kind}-{stamp}"


def check_id(id: str) -> None:
    """Raise `ConfigError` for an id that cannot be a marker's."""
    if not _ID.fullmatch(id):
        raise ConfigError(f"--id {id!r}: must be up to 64 letters, digits and . _ -")


def open_marker(marker: Marker, directory: Path) -> None:
    """Write a new marker; if there are too many, replace a closed one.

    Raises `StagewatchError`.
    """
    check_id(marker.id)
    if not marker.fault_type:
        raise ConfigError("TYPE must not be empty")
    present = markers_in(directory)
    if marker.id in {one.id for one in present}:
        raise StagewatchError(f"there is a marker {marker.id} already: give another --id")
    closed = [one for one in present if one.end is not None]
    if len(present) >= MAX_MARKERS and not closed:
        raise StagewatchError(
            f"{len(present)} faults are open: close some (stagewatch fault clear)"
        )
    try:
        if len(present) >= MAX_MARKERS:
            (directory / f"{closed[0].id}.json").unlink(missing_ok=True)
        write_marker(directory, marker)
    except OSError as error:
        raise StagewatchError(f"{directory}: {error.strerror}") from error


def clear(marker: Marker, directory: Path) -> bool:
    """Close a marker; False if it was closed before.  Raises `SourceError`."""
    now = time.time()
    if marker.end is not None and marker.end <= now:
        return False
    try:
        close_marker(directory, marker, now)
    except OSError as error:
        raise SourceError(f"{directory}: {error.strerror}") from error
    return True


def markers_in(directory: Path) -> list[Marker]:
    """The markers of this node.  Raises `StagewatchError`."""
    try:
        return read_markers(directory)[0]
    except NoData as error:
        raise StagewatchError(
            f"{directory} does not exist: is this a node with an agent? (--fault-dir)"
        ) from error
