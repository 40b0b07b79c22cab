"""Hands the proof against a node to those who repair nodes; marks or drains the node; undoes both.

  stagewatch act show CASE                   what is proposed, and the proof
  stagewatch act show CASE --as nvsentinel   as HealthEvents of NVSentinel, in JSON
  stagewatch act comment CASE                write it at the node: its comment in Slurm, or an event
  stagewatch act drain CASE                  take the node out
  stagewatch act undo NODE                   undo both, if they are still ours

CASE is a file of the judge, or - for http://JUDGE:9949/api/v1/jobs/ID on standard input.  A node is
proposed if a verdict blames a rank on it and the rank's GPU or the node has an error of hardware.
`comment` and `drain` trust the case: use one of your own judge only.

exit status:
  0  it is shown, done or undone
  1  it could not be done, or a limit forbids it
  2  an option cannot be used
  3  the case proposes nothing
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from stagewatch.act import forms
from stagewatch.act.site import Refused, SiteOptions, act, site
from stagewatch.core.config import add_options, options_of
from stagewatch.core.errors import SourceError
from stagewatch.core.words import printable
from stagewatch.judgement.case_file import read_any
from stagewatch.judgement.hardware import Proposal

NOTHING = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `stagewatch act` takes."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    show = actions.add_parser("show", help="show what is proposed, for people or for programs")
    show.add_argument(
        "--as",
        dest="form",
        choices=("text", "nvsentinel"),
        default="text",
        help="format of the output [default: text]",
    )
    comment = actions.add_parser("comment", help="write the proposal at the node")
    drain = actions.add_parser("drain", help="take the node out")
    for one in (show, comment, drain):
        one.add_argument("case", metavar="CASE", help="the judge's file; - reads standard input")
        one.add_argument("--node", default="", help="only this one of the case's nodes")
    undo = actions.add_parser("undo", help="take back what was done")
    which = undo.add_mutually_exclusive_group(required=True)
    which.add_argument("undone", nargs="?", metavar="NODE", help="the node")
    which.add_argument("--all", action="store_true", help="every node that was marked or taken out")
    for one in (comment, drain, undo):
        add_options(one, {"act": SiteOptions})


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for; returns the exit status, which `--help` explains."""
    if arguments.action == "undo":
        return _undo(arguments)
    found = [one for case in read_any(arguments.case) for one in case.proposals]
    found = [one for one in found if arguments.node in ("", one.node)]
    case = "standard input" if arguments.case == "-" else Path(arguments.case).name
    if arguments.action == "show":
        return _show(found, case, arguments.form)
    if not found:
        print("stagewatch: the case proposes nothing", file=sys.stderr)
        return NOTHING
    return _act(arguments, found, case)


def _show(found: list[Proposal], case: str, form: str) -> int:
    if not found:
        print("stagewatch: the case proposes nothing", file=sys.stderr)
        return NOTHING
    if form == "text":
        print("\n".join(printable(line) for one in found for line in forms.lines(one, case)))
        return 0
    print(json.dumps(forms.nvsentinel(found, case), indent=2))
    return 0


def _act(arguments: argparse.Namespace, found: list[Proposal], case: str) -> int:
    """One node after the other, each once, by a sure proposal if it has one."""
    options = options_of(arguments, SiteOptions, "act")
    place, status = site(options), 0
    for one in {one.node: one for one in sorted(found, key=lambda one: one.confidence)}.values():
        try:
            act(place, arguments.action, one, case, options, time.time())
        except (Refused, SourceError) as error:
            print(f"stagewatch: {printable(str(error))}", file=sys.stderr)
            status = 1
        else:
            done = "commented" if arguments.action == "comment" else "taken out"
            print(f"{one.node} is {done}; to take it back: stagewatch act undo {one.node}")
    return status


def _undo(arguments: argparse.Namespace) -> int:
    place = site(options_of(arguments, SiteOptions, "act"))
    nodes = place.ours() if arguments.all else [arguments.undone]
    said = [line for node in nodes for line in place.undo(node)]
    print(printable("; ".join(said)) if said else "nothing of ours is there to be undone")
    return 0
