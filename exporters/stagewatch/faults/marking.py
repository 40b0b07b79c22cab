"""Opens and closes markers, and tells Grafana: what `mark`, `clear` and `inject` share."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from stagewatch.core.errors import ConfigError, NoData, StagewatchError
from stagewatch.faults.markers import Marker, close_marker, read_markers, write_marker
from stagewatch.faults.outbox import Entry, Outbox, deliver

DEFAULT_DIRECTORY = Path("/run/stagewatch/faults")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of every action: where the markers are, and Grafana."""
    environ = os.environ
    state = environ.get("XDG_STATE_HOME") or "~/.local/state"
    parser.add_argument(
        "--fault-dir",
        type=Path,
        metavar="DIR",
        default=Path(environ.get("STAGEWATCH_FAULT_DIR") or DEFAULT_DIRECTORY),
        help=f"directory of the markers [default: {DEFAULT_DIRECTORY}; STAGEWATCH_FAULT_DIR]",
    )
    parser.add_argument(
        "--grafana-url",
        metavar="URL",
        default=environ.get("STAGEWATCH_GRAFANA_URL"),
        help="Grafana to annotate [default: none; STAGEWATCH_GRAFANA_URL]",
    )
    parser.add_argument(
        "--grafana-token-file",
        type=Path,
        metavar="FILE",
        default=environ.get("STAGEWATCH_GRAFANA_TOKEN_FILE"),
        help="file with the token of a service account that may annotate; the token itself can be "
        "in STAGEWATCH_GRAFANA_TOKEN [default: none; STAGEWATCH_GRAFANA_TOKEN_FILE]",
    )
    parser.add_argument(
        "--outbox",
        type=Path,
        metavar="DIR",
        default=Path(f"{state}/stagewatch/annotations").expanduser(),
        help="what Grafana still has to be told [default: $XDG_STATE_HOME/stagewatch/annotations]",
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


def open_marker(marker: Marker, directory: Path, outbox: Outbox, *, grafana: bool) -> None:
    """Write a marker, and note it for Grafana.  Raises `StagewatchError`."""
    check_id(marker.id)
    if not marker.fault_type:
        raise ConfigError("TYPE must not be empty")
    if marker.id in {each.id for each in markers_in(directory)}:
        raise StagewatchError(f"there is a marker {marker.id} already: give another --id")
    if grafana:
        outbox.put(Entry(marker))  # first: a fault that is marked is never left untold
    try:
        write_marker(directory, marker)
    except OSError as error:
        outbox.remove(marker.id)
        raise StagewatchError(f"{directory}: {error.strerror}") from error


def clear(marker: Marker, directory: Path, outbox: Outbox, *, grafana: bool) -> bool:
    """Close a marker, and note it for Grafana; False if it was closed before."""
    now = time.time()
    if marker.end is not None and marker.end <= now:
        return False
    entry = outbox.get(marker.id)
    if entry is not None or grafana:
        outbox.put(replace(entry or Entry(marker), marker=replace(marker, end=now)))
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


def tell_grafana(arguments: argparse.Namespace) -> None:
    """Send what is left, of earlier commands too."""
    directory, outbox = arguments.fault_dir, Outbox(arguments.outbox)
    ends = {marker.id: marker for marker in markers_in(directory) if marker.end is not None}
    for entry in outbox.entries():
        if entry.marker.end is None and entry.marker.id in ends:  # closed by somebody else
            outbox.put(replace(entry, marker=replace(entry.marker, end=ends[entry.marker.id].end)))
    if not arguments.grafana_url:
        return
    from stagewatch.faults.grafana import Grafana

    grafana = Grafana(arguments.grafana_url, token(arguments.grafana_token_file))
    for problem in deliver(outbox, grafana):
        print(f"kept for later: {problem}", file=sys.stderr)


def token(file: Path | None) -> str:
    """The token for Grafana.  Raises `ConfigError` where there is none."""
    try:
        text = Path(file).read_text() if file else os.environ.get("STAGEWATCH_GRAFANA_TOKEN", "")
    except OSError as error:
        raise ConfigError(f"--grafana-token-file {file}: {error.strerror}") from error
    text = text.strip()
    if not text or not text.isprintable():
        raise ConfigError(
            "Grafana needs a token: --grafana-token-file FILE, or STAGEWATCH_GRAFANA_TOKEN"
        )
    return text
