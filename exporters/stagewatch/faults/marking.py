"""Opens and closes markers: what `mark`, `clear` and `inject` share."""

from __future__ import annotations

import argparse
import os
import re
import time
from datetime import datetime, timezone
from pathlib import Path

from stagewatch.errors import ConfigError, NoData, StagewatchError
from stagewatch.faults.markers import Marker, close_marker, read_markers, write_marker

DEFAULT_DIRECTORY = Path("/run/stagewatch/faults")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flag of every action: where the markers are."""
    parser.add_argument(
        "--fault-dir",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get("STAGEWATCH_FAULT_DIR") or DEFAULT_DIRECTORY),
        help=f"directory of the markers [default: {DEFAULT_DIRECTORY}; STAGEWATCH_FAULT_DIR]",
    )


def new_id(fault_type: str, now: float) -> str:
    """A name for a marker, made of type and time."""
    stamp = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    kind = re.sub(r"[^A-Za-z0-9._-]+", "_", fault_type)[:32].strip("._-") or "fault"
    return f"{kind}-{stamp}"


def check_id(id: str) -> None:
    """Raise `ConfigError` for what cannot name a marker."""
    if not _ID.fullmatch(id):
        raise ConfigError(f"--id {id!r}: must be up to 64 letters, digits and . _ -")


def open_marker(marker: Marker, directory: Path) -> None:
    """Write a new marker.  Raises `StagewatchError`."""
    check_id(marker.id)
    if not marker.fault_type:
        raise ConfigError("TYPE must not be empty")
    if marker.id in {each.id for each in markers_in(directory)}:
        raise StagewatchError(f"there is a marker {marker.id} already: give another --id")
    try:
        write_marker(directory, marker)
    except OSError as error:
        raise StagewatchError(f"{directory}: {error.strerror}") from error


def clear(marker: Marker, directory: Path) -> bool:
    """Close a marker; False if it was closed before."""
    now = time.time()
    if marker.end is not None and marker.end <= now:
        return False
    try:
        close_marker(directory, marker, now)
    except OSError as error:
        raise StagewatchError(f"{directory}: {error.strerror}") from error
    return True


def markers_in(directory: Path) -> list[Marker]:
    """The markers of this node.  Raises `StagewatchError`."""
    try:
        return read_markers(directory)[0]
    except NoData as error:
        raise StagewatchError(
            f"{directory} does not exist: is this a node with an agent? (--fault-dir)"
        ) from error
