"""Injects faults, and marks those that are injected by other means, so that dashboards, reports and
alerts know of them.

A marker is a small file that the node agent reads and exports.  Each of these commands first undoes
what an injection that was killed left."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from stagewatch.errors import StagewatchError
from stagewatch.faults import inject, markers
from stagewatch.faults.journal import Journal, default_directory
from stagewatch.faults.kinds import STEPS
from stagewatch.faults.markers import Marker
from stagewatch.faults.undo import revert, revert_abandoned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch fault`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    injection = actions.add_parser(
        "inject",
        help="inject a fault, for a time, and undo it",
        description=inject.DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = inject.add_arguments(injection)
    mark = actions.add_parser("mark", help="say that a fault is injected from now on")
    mark.add_argument("fault_type", metavar="TYPE", help="what is injected, as cpu_contention")
    mark.add_argument("--id", help="name of the marker [default: made of type and time]")
    mark.add_argument("--target", default="", metavar="WORKER", help="where, as rollout_worker_8")
    mark.add_argument("--stage", default="", help="stage in which it is expected to surface")
    mark.add_argument("--scenario", default="", help="experiment that it belongs to")
    shown = actions.add_parser("list", help="show the markers of this node")
    shown.add_argument("--json", action="store_true", help="print JSON instead of a table")
    clear = actions.add_parser("clear", help="say that a fault has ended; ends an injected one")
    which = clear.add_mutually_exclusive_group(required=True)
    which.add_argument("id", nargs="?", metavar="ID", help="the marker's name, as list shows it")
    which.add_argument("--all", action="store_true", help="every open marker")
    for action in (*kinds, mark, shown, clear):
        markers.add_arguments(action)
        _add_undo_dir(action)


def _add_undo_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--undo-dir",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get("STAGEWATCH_UNDO_DIR") or default_directory()),
        help="what is to be undone of injected faults; yours alone [default: "
        "/var/lib/stagewatch-faults for root, else $XDG_STATE_HOME/stagewatch/undo; "
        "STAGEWATCH_UNDO_DIR]",
    )


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked; the exit status."""
    if arguments.action == "inject" and arguments.dry_run:
        return inject.run(arguments)
    revert_abandoned(Journal(arguments.undo_dir, STEPS), lambda text: print(text, file=sys.stderr))
    if arguments.action == "inject":
        return inject.run(arguments)
    if arguments.action == "mark":
        _mark(arguments)
    elif arguments.action == "clear":
        _clear(arguments)
    else:
        _list(arguments.fault_dir, as_json=arguments.json)
    return 0


def _mark(arguments: argparse.Namespace) -> None:
    now = time.time()
    marker = Marker(
        id=arguments.id or markers.new_id(arguments.fault_type, now),
        fault_type=arguments.fault_type,
        start=now,
        target_worker=arguments.target,
        expected_failure_stage=arguments.stage,
        scenario=arguments.scenario,
    )
    markers.open_marker(marker, arguments.fault_dir)
    print(marker.id)


def _clear(arguments: argparse.Namespace) -> None:
    directory: Path = arguments.fault_dir
    injected = _end_injections(arguments)
    found = {marker.id: marker for marker in markers.markers_in(directory)}
    if not arguments.all and arguments.id not in {*found, *injected}:
        raise StagewatchError(f"no marker {arguments.id} in {directory}; see stagewatch fault list")
    chosen = list(found.values()) if arguments.all else [found.get(arguments.id)]
    for marker in chosen:
        if marker is None or marker.id in injected:
            continue
        if markers.clear(marker, directory):
            print(marker.id)
        elif not arguments.all:
            print(f"{marker.id} has been closed before", file=sys.stderr)


def _end_injections(arguments: argparse.Namespace) -> list[str]:
    """Undo those that are asked for and in force; their markers are closed with them."""
    journal = Journal(arguments.undo_dir, STEPS)
    ended = []
    for id in journal.ids():
        if arguments.all or id == arguments.id:
            if revert(journal, id, lambda text: print(text, file=sys.stderr)):
                print(id)
            ended.append(id)
    return ended


def _list(directory: Path, *, as_json: bool) -> None:
    found = markers.markers_in(directory)
    if as_json:
        print(json.dumps([asdict(marker) for marker in found], indent=2))
        return
    rows = [("ID", "STATE", "FOR", "FAULT", "TARGET", "SURFACES IN", "SCENARIO")]
    for marker in found:
        ended = marker.end is not None and marker.end <= time.time()
        seconds = (marker.end if marker.end and ended else time.time()) - marker.start
        rows.append(
            (
                marker.id,
                "closed" if ended else "open",
                f"{seconds:.0f}s",
                marker.fault_type,
                marker.target_worker or "-",
                marker.expected_failure_stage or "-",
                marker.scenario or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        )
