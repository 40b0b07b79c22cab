"""Says whether a checkpoint is whole, before a job loads it.

  stagewatch checkpoint verify /scratch/540/checkpoints
      the newest checkpoint in there, or the one that `latest` or
      `latest_checkpointed_iteration.txt` names; DIR may also be the checkpoint itself
  stagewatch checkpoint verify DIR --json
      the same for programs: path, whole, files, bytes, checked, lacking, faults, doubts
  stagewatch checkpoint verify DIR --deadline 20s || exit 1
      in a batch script or a prolog: gives up after 20 s if a mount does not answer

Nothing is loaded, imported or unpickled: names, sizes, headers and the directories at the ends of
files are read, so that 100 GB take as long as 100 KB, and a hostile file can run nothing.

It looks for:
  files in the metadata        .metadata of torch.distributed.checkpoint, *.index.json of
                               safetensors and Hugging Face, -00001-of-00004, world_size_8_rank_0,
                               ranks of DeepSpeed and Megatron by the sizes that they state
  files that are cut short     safetensors, torch.save's zips, JSON, pieces of .distcp
  files never written          zeros where a header or a piece must be
  files of the previous one    that this one lacks, or that have less than 80 % of their size there
                               if their header does not state it

It does not read the contents of tensors: it does not see a changed byte there.

exit status:
  0  nothing is wrong with it; there may be doubts
  1  there is no checkpoint, it cannot be read, or the deadline has passed
  2  an option cannot be used
  3  it is not whole; the output lists the missing and damaged files
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stagewatch.checkpoint.find import find
from stagewatch.checkpoint.formats import Fault
from stagewatch.checkpoint.inventory import Inventory, TooMany, inventory
from stagewatch.checkpoint.verify import Report, TimeIsUp, verify
from stagewatch.core.config import duration
from stagewatch.core.errors import SourceError
from stagewatch.core.words import printable

NOT_WHOLE = 3
_SHOWN = 20
"""The most faults in lines of text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch checkpoint`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    action = actions.add_parser(
        "verify",
        help="say whether a checkpoint is whole",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action.add_argument(
        "directory", metavar="DIR", type=Path, help="a checkpoint, or a directory of them"
    )
    action.add_argument("--json", action="store_true", help="print one object of JSON")
    action.add_argument(
        "--deadline",
        metavar="TIME",
        type=duration,
        default=60.0,
        help="give up after so long [default: 60s]",
    )


def run(arguments: argparse.Namespace) -> int:
    """Verify, print, and return the exit status, which `--help` explains.  Raises `SourceError`."""
    until = time.monotonic() + arguments.deadline
    told = _in_child(lambda: _verified(arguments.directory, until), until)
    if "error" in told:
        raise SourceError(f"{arguments.directory}: {told['error']}")
    print(json.dumps(told) if arguments.json else _text(told))
    return 0 if told["whole"] else NOT_WHOLE


def _verified(directory: Path, until: float) -> dict[str, Any]:
    """The answer as an object of JSON; only `error` if there is none."""
    try:
        found = find(directory)
        if found is None:
            return {"error": "there is no checkpoint"}
        if found.lost:
            fault = Fault("missing", found.lost, f"{found.pointer} names it")
            return _as_json(directory, Report(faults=[fault], lacking=1))
        before = _files(found.before) if found.before else None
        return _as_json(found.paths[0], verify(_files(found.paths), before, until=until))
    except TimeIsUp:
        return {"error": "the deadline was passed before all of it was looked at"}
    except TooMany as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": f"{error.filename or ''} {error.strerror or error}".strip()}


def _files(paths: tuple[Path, ...]) -> Inventory:
    """The files of one directory, or of several files side by side."""
    root = paths[0] if len(paths) == 1 and paths[0].is_dir() else paths[0].parent
    return inventory(root, [root] if paths == (root,) else paths, follow=True)


def _as_json(path: Path, report: Report) -> dict[str, Any]:
    return {
        "path": str(path),
        "whole": report.whole,
        "files": report.files,
        "bytes": report.bytes,
        "checked": report.checked,
        "lacking": report.lacking,
        "faults": [asdict(fault) for fault in report.faults],
        "doubts": report.doubts[:1000],
    }


def _text(told: dict[str, Any]) -> str:
    count = f"{told['files']:,} files, {told['bytes']:,} bytes"
    state = "is whole" if told["whole"] else f"is not whole; bad files: {told['lacking']:,}"
    lines = [f"{told['path']} {state} ({count}; {told['checked']:,} complete by their format)"]
    for fault in told["faults"][:_SHOWN]:
        kind = "is missing" if fault["kind"] == "missing" else "is wrong"
        lines.append(f"  {fault['name']} {kind}: {fault['why']}")
    if told["lacking"] > _SHOWN:
        lines.append(f"  and {told['lacking'] - _SHOWN:,} more")
    lines += [f"  doubtful: {doubt}" for doubt in told["doubts"][:_SHOWN]]
    return "\n".join(printable(line, 400) for line in lines)


def _in_child(work: Callable[[], dict[str, Any]], until: float) -> dict[str, Any]:
    """The result of `work` in a child, which is left behind if a mount holds it up."""
    sys.stdout.flush()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        try:
            with os.fdopen(theirs, "w") as out:
                json.dump(work(), out)
        except BaseException as error:
            os.write(2, f"stagewatch: {error!r}\n".encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        if not select.select([answer], [], [], max(0.0, until + 1 - time.monotonic()))[0]:
            os.kill(child, signal.SIGKILL)
            return {"error": "it does not answer: the deadline was passed"}
        raw = answer.read()
    os.waitpid(child, 0)
    return json.loads(raw) if raw else {"error": "looking at it failed"}
