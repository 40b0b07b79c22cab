"""Accounting records: ended runs of jobs (sacct) and outages of nodes (sacctmgr).

https://slurm.schedmd.com/sacct.html and https://slurm.schedmd.com/sacctmgr.html
"""

from __future__ import annotations

import re
import sys

from stagewatch.slurm import model
from stagewatch.slurm.notation import ENDED_STATES, job_state

FIELD = "\x1f"
"""A separator that no name contains."""
_ENDED = "BF,CA,CD,DL,F,NF,OOM,PR,RQ,TO"
_EVENT_START = re.compile(r"[^|\n]*\|\d+\|(?:\d+|Unknown)\|")
DISABLED = ("accounting storage is disabled", "accounting_storage/slurmdbd' is supported")
"""Messages of the commands without slurmdbd."""


def job_arguments(ago: float) -> tuple[str, ...]:
    """Arguments of sacct for every run that ended in the last `ago` seconds.

    `--duplicates` keeps every run of a requeued job; naming the states also lists jobs that never
    became eligible.
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
        "--format=JobIDRaw,JobID,State,ExitCode,Submit,Eligible,Start,End,Partition,AllocTRES",
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
        "format=NodeName,Start,End,State,Reason",
    )


def parse_jobs(output: bytes) -> model.Records[model.EndedJob]:
    """The ended runs that sacct prints; no output means that there were none."""
    lines = output.decode(errors="replace").split("\n")
    return model.read_all((line for line in lines if line.strip()), _run)


def _run(line: str) -> model.EndedJob | None:
    """Read one run; `None` if it has not ended."""
    raw, shown, state, code, submit, eligible, start, end, partition, tres = line.split(FIELD)
    ended = job_state(state)
    submitted, ended_at = model.moment(submit), model.moment(end)
    if submitted is None or ended_at is None or ended not in (*ENDED_STATES, "REQUEUED"):
        return None
    return model.EndedJob(
        job_id=model.required(model.number(raw)),
        tasks=model.tasks_of(shown.partition("_[")[2].rstrip("]")),
        state=sys.intern(ended),
        exit_code=model.number(code.partition(":")[0]) or 0,
        partition=sys.intern(model.text(partition).partition(",")[0]),
        submit=submitted,
        eligible=model.moment(eligible),
        start=model.moment(start) if tres else None,
        end=ended_at,
    )


def parse_events(output: bytes) -> model.Records[model.NodeEvent]:
    """The events that sacctmgr prints; the reason comes last, since it is free text."""
    return model.read_all(model.joined(output, _begins), _event)


def _event(record: str) -> model.NodeEvent | None:
    """Read one event; `None` for an event of the whole cluster, which has no node."""
    name, start, end, state, reason = record.split("|", 4)
    begun = model.required(model.moment(start))
    return (
        model.NodeEvent(name, state, begun, model.moment(end), model.text(" ".join(reason.split())))
        if name
        else None
    )


def _begins(line: str) -> bool:
    return line.count("|") >= 4 and _EVENT_START.match(line) is not None
