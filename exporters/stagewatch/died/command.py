"""Says why a job died, from its logs: the class, the first rank, the first line, the node.

  stagewatch died slurm-540.out
  stagewatch died --job 540 logs/rank*.log kernel.log

A log may hold the lines of all ranks, or of one.  A file with the output of `journalctl -k` or
`dmesg -T` adds errors of GPUs and processes that the kernel killed; --job asks Slurm's accounting.
Of a large file it reads the first 8 MiB and the last 56 MiB.

exit status:
  0  the reason is printed
  1  a file cannot be read, or Slurm does not answer
  2  an option cannot be used
  3  there is no evidence of why the job died
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

from stagewatch.core.errors import ConfigError
from stagewatch.core.words import printable, size
from stagewatch.died.causes import Cause, Death, Kind, first
from stagewatch.died.lines import of_line
from stagewatch.died.log import Log, came_last, read, together
from stagewatch.slurm.transport import accounting
from stagewatch.slurm.transport.text import slurm_runner

MAX_SUPPORT = 5
SACCT_SECONDS = 30.0
SACCT_DAYS = 30
MAX_FILES = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch died`."""
    parser.add_argument("file", nargs="*", type=Path, metavar="FILE", help="a log of the job")
    parser.add_argument(
        "--job", default="", metavar="ID", help="also ask Slurm's accounting (sacct) of this job"
    )
    parser.add_argument("--json", action="store_true", help="print the record as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read, and print; returns the exit status, which `--help` explains."""
    if not (arguments.file or arguments.job):
        raise ConfigError("died needs a log or a job: stagewatch died slurm-540.out")
    if len(arguments.file) > MAX_FILES:
        raise ConfigError(f"more than {MAX_FILES} files")
    logs = [read(file) for file in arguments.file]
    record = judged(logs, _accounting(arguments.job) if arguments.job else [])
    record = {"job": arguments.job, **record}
    print(json.dumps(record, indent=2) if arguments.json else "\n".join(_text(record)))
    return 3 if record["class"] == Death.UNKNOWN.value else 0


def judged(logs: Sequence[Log], others: Sequence[Cause] = ()) -> dict[str, object]:
    """The record of a death, from logs and from other causes."""
    causes = [*together(logs), *others]
    cause = first(causes)
    skipped = sum(log.skipped for log in logs)
    if cause is None:
        return {"class": Death.UNKNOWN.value, "words": Death.UNKNOWN.words, "skipped": skipped}
    rank, node = cause.rank, cause.node
    support = [one for one in causes if one.place != cause.place or one.what != cause.what]
    same = [one for one in support if one.death is cause.death]
    if rank is None:
        rank = next((one.rank for one in same if one.rank is not None), None)
    for root in (log.root for log in logs if log.root):  # torchrun knows who it was, and where
        rank = root.rank if rank is None else rank
        node = node or (root.node if rank == root.rank else "")
    node = node or next((one.node for one in same if one.node and one.rank in (None, rank)), "")
    return {
        "class": cause.death.value,
        "words": cause.death.words,
        "sure": cause.sure,
        "rank": rank,
        "node": node,
        "line": cause.what,
        "place": cause.place,
        "came_last": came_last(logs) if cause.kind is Kind.WAITED else [],
        "support": [_as_json(one) for one in [*same, *others][:MAX_SUPPORT]],
        "echoes": sum(one.kind > Kind.HELPER for one in support),
        "skipped": skipped,
    }


def _as_json(cause: Cause) -> dict[str, object]:
    return {
        "class": cause.death.value,
        "kind": cause.kind.name.lower(),
        "rank": cause.rank,
        "node": cause.node,
        "line": cause.what,
        "place": cause.place,
    }


def _text(record: dict[str, object]) -> list[str]:
    """The record as text."""
    if "line" not in record:
        lines = [str(record["words"])]
    else:
        likely = "" if record["sure"] else "likely: "
        who = "" if record["rank"] is None else f", rank {record['rank']} first"
        where = f", on {record['node']}" if record["node"] else ""
        lines = [printable(f"{likely}{record['words']}{who}{where}")]
        lines.append(f"  {record['place']}: {record['line']}")
        if record["came_last"]:
            lines.append(f"  the others waited for rank {_numbers(record['came_last'])}")
        support = record["support"]
        assert isinstance(support, list)  # noqa: S101 - as `judged` makes it
        lines += [f"  also {one['place']}: {one['line']}" for one in support]
        if echoes := record["echoes"]:
            more = "1 more line is an echo" if echoes == 1 else f"{echoes} more lines are echoes"
            lines.append(f"  {more} of it, or a wait")
    skipped = record["skipped"]
    if isinstance(skipped, int) and skipped:
        lines.append(f"  {size(skipped)} between head and tail were not read")
    return lines


def _numbers(ranks: object) -> str:
    assert isinstance(ranks, list)  # noqa: S101 - as `judged` makes it
    return ", ".join(map(str, ranks[:8])) + (" and others" if len(ranks) > 8 else "")


def _accounting(job: str) -> list[Cause]:
    """The end of the job by Slurm's accounting.  Raises `StagewatchError`."""
    if not re.fullmatch(r"\d{1,10}(_\d{1,10})?", job):
        raise ConfigError(f"--job {job!r}: must be a number, or of an array one as 540_3")
    command = ("sacct", *accounting.job_arguments(SACCT_DAYS * 86400), f"--jobs={job}")
    output = slurm_runner().run(command, SACCT_SECONDS)
    last = max(accounting.parse_jobs(output).items, key=lambda one: one.end, default=None)
    if last is None or last.state == "COMPLETED":
        return []
    return [of_accounting(last.state, last.exit_code, last.end)]


def of_accounting(state: str, exit_code: int, end: float | None = None) -> Cause:
    """The cause by the last state of a job."""
    text = f"{state} by Slurm, exit code {exit_code}"
    means = of_line(text)
    kind = Kind.STATUS if means is None or state == "FAILED" else means.kind
    death = Death.CODE if means is None else means.death
    when = time.time() if end is None else end
    return Cause(kind, when, "the job", text, death, place="accounting")
