"""`stagewatch fault inject`: what is asked for becomes a plan, which is shown or carried out."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from stagewatch.core.errors import ConfigError
from stagewatch.faults import marking
from stagewatch.faults.injection import Injection
from stagewatch.faults.journal import Journal
from stagewatch.faults.kinds import KINDS
from stagewatch.faults.kinds.base import Kind, Plan, Request, duration
from stagewatch.faults.markers import Marker
from stagewatch.faults.screen import Screen
from stagewatch.record import DEFAULT_DIRECTORY

MAX_SECONDS = 86_400.0
STAYS_DEAD = "a killed process stays dead"

DESCRIPTION = """\
Injects a real fault for a time, marks it while it lasts, and always undoes it: when its time is
over, on Ctrl-C and SIGTERM, when this command is killed (a watchdog does it then), and at the next
`stagewatch fault` command where the watchdog was killed too or the machine has rebooted.

Nothing is done without an explicit --target. --dry-run shows every command and does none of it.
`stagewatch fault inject KIND --help` tells what a kind's target is.

  stagewatch fault inject cpu --target all --for 60s --worker rollout_worker_8 --stage train
  stagewatch fault inject network-loss --target metaserver:8000 --loss 10% --for 5m --dry-run
  stagewatch fault inject process-stop --target 4711:5 --for 30s
"""


def add_arguments(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The flags; returns the parser of every kind, for the flags that all actions have."""
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", dest="kind", required=True)
    return [_add_kind(kinds.add_parser(name, help=kind.help), kind) for name, kind in KINDS.items()]


def _add_kind(parser: argparse.ArgumentParser, kind: Kind) -> argparse.ArgumentParser:
    ends = "" if kind.lasts else f"  It takes no --for: {STAYS_DEAD}."
    parser.description = f"{kind.help[0].upper()}{kind.help[1:]}.{ends}"
    parser.add_argument("--target", required=True, metavar="TARGET", help=kind.target)
    if kind.lasts:
        parser.add_argument(
            "--for", required=True, dest="seconds", metavar="TIME", help="how long, as 60s or 5m"
        )
    else:
        parser.add_argument("--for", type=_no_time, help=argparse.SUPPRESS)
    kind.add_options(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be done and undone, and do nothing"
    )
    parser.add_argument("--id", help="name of the marker [default: made of kind and time]")
    parser.add_argument(
        "--worker", metavar="WORKER", help="target_worker of the marker [default: the target]"
    )
    parser.add_argument("--stage", default="", help="stage in which it is expected to surface")
    parser.add_argument("--scenario", default="", help="experiment that it belongs to")
    parser.add_argument(
        "--record-dir",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get("STAGEWATCH_DIR") or DEFAULT_DIRECTORY),
        help=f"stage records, by which a rank is found [default: {DEFAULT_DIRECTORY}; "
        "STAGEWATCH_DIR]",
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 once its time is over and all is undone; 1 where it ended otherwise; 130 and
    143 after Ctrl-C and SIGTERM."""
    kind = KINDS[arguments.kind]
    now = time.time()
    fault_type = kind.name.replace("-", "_")
    marker = Marker(
        id=arguments.id or marking.new_id(kind.name, now),
        fault_type=fault_type,
        start=now,
        target_worker=arguments.target if arguments.worker is None else arguments.worker,
        expected_failure_stage=arguments.stage,
        scenario=arguments.scenario,
    )
    marking.check_id(marker.id)
    if arguments.grafana_url:
        marking.token(arguments.grafana_token_file)
    journal = Journal(arguments.undo_dir)
    request = Request(
        id=marker.id,
        target=_target(arguments.target),
        seconds=_seconds(arguments.seconds) if kind.lasts else 0.0,
        log=journal.directory / f"{marker.id}.log",
        options=arguments,
    )
    plan = kind.plan(request)
    screen = Screen(sys.stdout)
    screen.head(f"{kind.name}: {plan.where}{_for(request)}")
    for note in plan.notes:
        screen.line("note", note)
    if arguments.dry_run:
        _show(plan, marker, arguments.fault_dir, screen)
        return 0
    journal.prepare()
    return Injection(plan, request, marker, journal, screen).run()


def _target(text: str) -> str:
    if not text or not text.isprintable() or len(text) > 4096:
        raise ConfigError("--target must not be empty, and must be printable")
    return text


def _no_time(text: str) -> None:
    raise argparse.ArgumentTypeError(f"not for this kind: {STAYS_DEAD}")


def _seconds(text: str) -> float:
    seconds = duration("--for", text)
    if not 1 <= seconds <= MAX_SECONDS:
        raise ConfigError(f"--for {text}: must be from 1s to 24h")
    return seconds


def _for(request: Request) -> str:
    return f", for {request.seconds:g} s" if request.seconds else ""


def _show(plan: Plan, marker: Marker, directory: Path, screen: Screen) -> None:
    screen.line("would", f"write {directory / marker.id}.json, the marker")
    for step in plan.steps:
        for line in step.doing():
            screen.line("would", line)
    for step in reversed(plan.steps):
        for line in step.undoing():
            screen.line("then", line)
    screen.line("then", "close the marker")
    screen.head("dry run: nothing was done")
