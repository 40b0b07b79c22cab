"""What accounting has recorded: ended runs of jobs (sacct) and periods nodes were out (sacctmgr).

https://slurm.schedmd.com/sacct.html and https://slurm.schedmd.com/sacctmgr.html
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import lru_cache

from stagewatch.slurm.model import EndedJob, NodeEvent, Records
from stagewatch.slurm.states import ENDED_STATES, job_state
from stagewatch.slurm.transport.text import FIELD, name_of, seconds

_FIELDS = (
    "JobIDRaw",
    "JobID",
    "State",
    "ExitCode",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "Partition",
    "User",
    "Account",
    "AllocTRES",
)
_ENDED = "BF,CA,CD,DL,F,NF,OOM,PR,RQ,TO"
_EVENT_START = re.compile(r"[^|\n]*\|\d+\|(?:\d+|Unknown)\|")
DISABLED = ("accounting storage is disabled", "accounting_storage/slurmdbd' is supported")
"""What the commands say where there is no slurmdbd to ask."""


def job_arguments(ago: float) -> tuple[str, ...]:
    """Arguments of sacct for every run that ended in the last `ago` seconds.

    `--duplicates` keeps each run of a requeued job; with the states named, jobs that never became
    eligible are listed as well.
    """
    return (
        "--allusers",
        "--allocations",
        "--duplicates",
        "--noheader",
        "--parsable2",
        f"--delimiter={FIELD}",
        f"--state={_ENDED}",
        f"--starttime=now-{max(1, int(ago))}seconds",
        "--endtime=now",
        f"--format={','.join(_FIELDS)}",
    )


def event_arguments(ago: float) -> tuple[str, ...]:
    """Arguments of sacctmgr for every event of a node in the last `ago` seconds."""
    return (
        "--noheader",
        "--parsable2",
        "list",
        "event",
        "event=Node",
        f"start=now-{max(1, int(ago))}seconds",
        "format=NodeName,Start,End,State,User,Reason",
    )


def parse_jobs(output: bytes) -> Records[EndedJob]:
    """The ended runs that sacct prints; no output means that there were none."""
    jobs, malformed = [], 0
    for line in output.decode(errors="replace").split("\n"):
        if not line.strip():
            continue
        try:
            job = _job(line.split(FIELD))
        except ValueError:
            malformed += 1
            continue
        if job is not None:
            jobs.append(job)
    return Records(tuple(jobs), malformed)


def _job(values: list[str]) -> EndedJob | None:
    """Read one run; `None` if it has not ended after all."""
    if len(values) != len(_FIELDS):
        raise ValueError("a record of another shape")
    raw, shown, state, code, submit, eligible, start, end = values[:8]
    partition, user, account, tres = values[8:]
    exit_code, _, signal = code.partition(":")
    state = job_state(state)
    submitted, ended = seconds(submit), seconds(end)
    if submitted is None or ended is None or state not in (*ENDED_STATES, "REQUEUED"):
        return None
    return EndedJob(
        job_id=int(raw),
        tasks=_tasks(shown),
        state=sys.intern(state),
        exit_code=int(exit_code) if exit_code.isdecimal() else 0,
        signal=int(signal) if signal.isdecimal() else 0,
        partition=sys.intern(partition.partition(",")[0]),
        user=sys.intern(name_of(user)),
        account=sys.intern(name_of(account)),
        submit=submitted,
        eligible=seconds(eligible),
        start=seconds(start) if tres else None,
        end=ended,
    )


def _tasks(shown: str) -> int:
    """How many jobs `7`, `6_9` or `7_[0-4%2]` stands for; 1 where the list was cut short."""
    _, bracket, tasks = shown.partition("_[")
    try:
        return array_tasks(tasks.rstrip("]")) if bracket else 1
    except ValueError:
        return 1


@lru_cache(maxsize=4096)
def array_tasks(text: str) -> int:
    """How many tasks `3`, `0-9%2` or `1,4-20:4` stands for.  Raises `ValueError`."""
    total = 0
    for part in text.partition("%")[0].split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\d{1,9}))?", part)
        if not match:
            raise ValueError(f"not a list of array tasks: {text[:60]!r}")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        total += max(0, last - first) // max(1, step) + 1
    return total


def parse_events(output: bytes) -> Records[NodeEvent]:
    """The events that sacctmgr prints; the reason comes last, since it may hold anything."""
    events, malformed = [], 0
    for record in _event_records(output.decode(errors="replace")):
        name, start, end, state, user, reason = record.split("|", 5)
        begun = seconds(start)
        if begun is None:
            malformed += 1
        elif name:  # without a name it is about the whole cluster
            events.append(
                NodeEvent(
                    node=name,
                    state=state,
                    start=begun,
                    end=seconds(end),
                    reason=name_of(" ".join(reason.split())),
                    user=user.partition("(")[0],
                )
            )
    return Records(tuple(events), malformed)


def _event_records(text: str) -> Iterator[str]:
    record = ""
    for line in text.split("\n"):
        if _EVENT_START.match(line) and line.count("|") >= 5:
            if record:
                yield record
            record = line
        elif record:
            record += " " + line
    if record:
        yield record
