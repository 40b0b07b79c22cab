"""Injects faults, and marks faults that other tools inject, so that dashboards, reports and alerts
show them.

A marker is a small file that the node agent reads and exports.  Every one of these commands first
undoes the faults of commands that were killed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stagewatch.core import config
from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.core.terminal import aligned
from stagewatch.faults import markers
from stagewatch.faults.injection import Injection
from stagewatch.faults.journal import Journal, default_directory
from stagewatch.faults.kinds import KINDS, STEPS
from stagewatch.faults.markers import Marker
from stagewatch.faults.plan import Kind, Request, parsed
from stagewatch.faults.undo import revert, revert_abandoned
from stagewatch.record import DEFAULT_DIRECTORY

MAX_SECONDS = 86_400.0
STAYS_DEAD = "a killed process stays dead"

INJECT = """\
Injects a real fault for a time and marks it while it lasts. The command undoes the fault when the
time is over, and on Ctrl-C and SIGTERM. If the command is killed, a watchdog undoes the fault; if
the watchdog is killed too, or the machine reboots, the next `stagewatch fault` command does.

Nothing happens without an explicit --target. --dry-run shows every command and runs none.
`stagewatch fault inject KIND --help` explains a kind's target.

  stagewatch fault inject cpu --target all --for 60s --worker rollout_worker_8 --stage train
  stagewatch fault inject network-loss --target metaserver:8000 --loss 10% --for 5m --dry-run
  stagewatch fault inject process-stop --target 4711:5 --for 30s
"""


@dataclass(frozen=True, slots=True)
class FaultOptions:
    """Options of every `stagewatch fault` command."""

    fault_dir: Path = config.option(Path("/run/stagewatch/faults"), "directory of the markers")
    undo_dir: Path | None = config.option(
        None,
        "directory of the undo journal, which only you may write to; if none, "
        "/var/lib/stagewatch-faults for root and $XDG_STATE_HOME/stagewatch/undo for others",
        parse=config.path,
    )
    record_dir: Path = config.option(
        Path(DEFAULT_DIRECTORY),
        "directory of the ranks' stage records, which name the process of a rank",
        env="STAGEWATCH_DIR",
    )


def _settings_of(kind: Kind[Any]) -> list[config.Setting]:
    """The option `size` of disk-fill is the key `disk-fill.size` and the flag --size."""
    return list(
        config.settings_of(kind.options, f"{kind.name}.", env="STAGEWATCH_FAULT_", short=True)
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch fault`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    inject = actions.add_parser(
        "inject",
        help="inject a fault for a time, and undo it",
        description=INJECT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = inject.add_subparsers(title="kinds", metavar="KIND", dest="kind", required=True)
    for name, kind in KINDS.items():
        _add_kind(kinds.add_parser(name, help=kind.help), kind)
    mark = actions.add_parser("mark", help="mark a fault that another tool is injecting")
    mark.add_argument("fault_type", metavar="TYPE", help="what is injected, as cpu_contention")
    mark.add_argument("--target", default="", metavar="WORKER", help="where, as rollout_worker_8")
    _add_marker_flags(mark)
    shown = actions.add_parser("list", help="show the markers of this node")
    shown.add_argument("--json", action="store_true", help="print JSON instead of a table")
    clear = actions.add_parser("clear", help="close a marker; undo its fault if it was injected")
    which = clear.add_mutually_exclusive_group(required=True)
    which.add_argument("id", nargs="?", metavar="ID", help="the marker's name, as list shows it")
    which.add_argument("--all", action="store_true", help="every open marker")
    for action in (mark, shown, clear):
        _add_settings(action)


def _add_kind(parser: argparse.ArgumentParser, kind: Kind[Any]) -> None:
    note = "" if kind.lasts else f"  It takes no --for: {STAYS_DEAD}."
    parser.description = f"{kind.help[0].upper()}{kind.help[1:]}.{note}"
    parser.add_argument("--target", required=True, metavar="TARGET", help=kind.target)
    if kind.lasts:
        parser.add_argument(
            "--for", required=True, dest="seconds", metavar="TIME", help="how long, as 60s or 5m"
        )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be done and undone, and do nothing"
    )
    parser.add_argument(
        "--worker", metavar="WORKER", help="target_worker of the marker [default: the target]"
    )
    _add_marker_flags(parser)
    if settings := _settings_of(kind):
        config.add_flags(parser.add_argument_group("the fault"), settings)
    _add_settings(parser)


def _add_marker_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--id", help="name of the marker [default: made of type and time]")
    parser.add_argument(
        "--stage", default="", help="stage in which the fault is expected to surface"
    )
    parser.add_argument("--scenario", default="", help="experiment that the fault belongs to")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    config.add_config_flag(parser, "fault", "fault.KIND")
    config.add_flags(parser.add_argument_group("files"), config.settings_of(FaultOptions))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    values = _values(arguments)
    options: FaultOptions = config.fill(FaultOptions, values)
    journal = Journal(options.undo_dir or default_directory(), STEPS)
    if arguments.action != "inject" or not arguments.dry_run:
        revert_abandoned(journal, _say)
    if arguments.action == "inject":
        return _inject(arguments, options, values, journal)
    if arguments.action == "mark":
        marker = _marker(arguments, arguments.fault_type, arguments.target)
        markers.open_marker(marker, options.fault_dir)
        print(marker.id)
    elif arguments.action == "clear":
        _clear(options.fault_dir, journal, None if arguments.all else arguments.id)
    else:
        _list(markers.markers_in(options.fault_dir), as_json=arguments.json)
    return 0


def _values(arguments: argparse.Namespace) -> dict[str, Any]:
    file = Path(arguments.config) if arguments.config else None
    content = config.read_file(file, "fault") if file else {}
    settings = [*config.settings_of(FaultOptions)]
    if arguments.action == "inject":
        for kind in KINDS.values():
            settings += _settings_of(kind)
    else:  # a bad option of a kind must not prevent undoing a fault
        content = {key: value for key, value in content.items() if "." not in key}
    return config.resolve(
        settings,
        flags=vars(arguments),
        environ={name: value for name, value in os.environ.items() if value},
        file=content,
        where=f"{file} [fault]",
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _marker(arguments: argparse.Namespace, fault_type: str, target: str) -> Marker:
    now = time.time()
    return Marker(
        id=arguments.id or markers.new_id(fault_type, now),
        fault_type=fault_type,
        start=now,
        target_worker=target,
        expected_failure_stage=arguments.stage,
        scenario=arguments.scenario,
    )


def _inject(
    arguments: argparse.Namespace, options: FaultOptions, values: dict[str, Any], journal: Journal
) -> int:
    """Exit status 0 after its time is over and all is undone; 1 if it ended otherwise; 130 and 143
    after Ctrl-C and SIGTERM."""
    kind = KINDS[arguments.kind]
    target: str = arguments.target
    if not target or not target.isprintable() or len(target) > 4096:
        raise ConfigError("--target must not be empty, and must be printable")
    worker = target if arguments.worker is None else arguments.worker
    marker = _marker(arguments, kind.name.replace("-", "_"), worker)
    markers.check_id(marker.id)
    request = Request(
        id=marker.id,
        target=target,
        seconds=_seconds(arguments.seconds) if kind.lasts else 0.0,
        log=journal.directory / f"{marker.id}.log",
        record_dir=options.record_dir,
    )
    plan = kind.plan(request, config.fill(kind.options, values, f"{kind.name}."))
    injection = Injection(plan, request.seconds, marker, options.fault_dir, journal)
    injection.announce(kind.name)
    return injection.show() if arguments.dry_run else injection.run()


def _seconds(text: str) -> float:
    seconds: float = parsed("--for", text, config.duration)
    if not 1 <= seconds <= MAX_SECONDS:
        raise ConfigError(f"--for {text}: must be from 1s to 24h")
    return seconds


def _clear(directory: Path, journal: Journal, id: str | None) -> None:
    """Close one marker; without an id, all of them.  If the fault was injected here, undo it, which
    also closes the marker."""
    undone = []
    for entry in journal.ids():
        if id in (None, entry):
            if revert(journal, entry, _say):
                print(entry)
            undone.append(entry)
    present = {marker.id: marker for marker in markers.markers_in(directory)}
    if id is not None and id not in {*present, *undone}:
        raise StagewatchError(f"no marker {id} in {directory}; see stagewatch fault list")
    for marker in present.values():
        if marker.id in undone or id not in (None, marker.id):
            continue
        if markers.clear(marker, directory):
            print(marker.id)
        elif id is not None:
            _say(f"{marker.id} has been closed before")


def _list(present: Iterable[Marker], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(marker) for marker in present], indent=2))
        return
    now = time.time()
    rows = [("ID", "STATE", "FOR", "FAULT", "TARGET", "SURFACES IN", "SCENARIO")]
    for marker in present:
        ended = marker.end is not None and marker.end <= now
        seconds = (marker.end if marker.end and ended else now) - marker.start
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
    print("\n".join(aligned(rows)))
