"""Captures of Slurm's commands.

The counts beside the parsers' come from regular expressions over the raw text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from stagewatch.slurm import model
from stagewatch.slurm.transport import accounting, diagnostics, text
from tests.compatibility.reader import NoAnswerError, Reader, Value

Nodes = model.Records[model.Node]
Jobs = model.Records[model.Job]
_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_CONFIGURED = re.compile(r"(?:^|,)gpu:(?:[^,():]+:)?(\d+)")


def _total(pattern: re.Pattern[str], listed: str) -> int:
    return sum(map(int, pattern.findall(listed)))


def _of_jobs(jobs: Jobs, states: Counter[str], running: int | None) -> Iterator[Value]:
    """What is said of a queue; `running` is the GPUs of running jobs, if they are tracked."""
    read: Counter[str] = Counter()
    for job in jobs.items:
        read[job.state] += job.tasks
    yield Value("records not read", jobs.malformed, 0)
    for state in sorted(read | states):
        yield Value(f"jobs and tasks {state}", read[state], states[state])
    if running is not None:
        held = [job for job in jobs.items if job.state == "RUNNING"]
        yield Value("GPUs of running jobs", sum(n for job in held for _, n in job.gpus), running)


def _of_nodes(
    nodes: Nodes, states: list[str], configured: int, reasons: int, used: int | None
) -> Iterator[Value]:
    """What is said of nodes; `used` is the GPUs in use by TRES, if they are tracked."""
    yield Value("records not read", nodes.malformed, 0)
    yield Value("nodes", len(nodes.items), len(states))
    for flag in ("DRAIN", "DOWN"):
        read = sum(flag in {node.state, *node.flags} for node in nodes.items)
        counted = sum(flag in re.split(r"[^A-Z_]+", state) for state in states)
        yield Value(f"nodes {flag}", read, counted)
    gpus = [gpus for node in nodes.items for gpus in node.gpus]
    yield Value("GPUs configured", sum(of.configured for of in gpus), configured)
    if used is not None:
        yield Value("GPUs in use", sum(of.allocated for of in gpus), used)
    yield Value("nodes with a reason", sum(bool(node.reason) for node in nodes.items), reasons)


def _squeue(content: bytes) -> Iterator[Value]:
    states: Counter[str] = Counter()
    tasks: dict[str, list[int]] = {}
    running = 0
    for raw in filter(str.strip, content.decode(errors="replace").split(text.RECORD)):
        fields = raw.lstrip("\n").split(text.FIELD)
        states[fields[2]] += 1
        running += _total(_GPUS, raw.replace(text.FIELD, ",")) if fields[2] == "RUNNING" else 0
        if fields[-1].isdecimal() and fields[2] == "PENDING":
            tasks.setdefault(fields[0], []).append(int(fields[-1]))
    for numbers in tasks.values():  # squeue leaves out the last task of a stepped array
        steps = {after - before for before, after in pairwise(numbers)}
        if len(numbers) > 5 and len(steps) == 1 and max(steps) > 1:
            states["PENDING"] += numbers[-1] + max(steps) - numbers[0] > 12
    tracked = b"gres/gpu=" in content
    yield from _of_jobs(text.parse_jobs(content), states, running if tracked else None)


def _nodes(content: bytes) -> Iterator[Value]:
    shown = content.decode(errors="replace")
    lines = [
        re.sub(r"\s+", " ", record) for record in re.split(r"^(?=NodeName=)", shown, flags=re.M)
    ]
    # Free text comes last, so that the first of each name is the node's own.
    heads = [re.split(r" (?:Reason|Comment|Extra)=", line)[0] for line in lines if "State=" in line]
    tracked = any("CfgTRES=" in head and "gres/gpu=" in head for head in heads)
    yield from _of_nodes(
        text.parse_nodes(content),
        [re.findall(r" State=(\S+)", head)[-1] for head in heads],
        sum(_total(_CONFIGURED, _first(r" Gres=(\S+)", head)) for head in heads),
        sum(bool(re.search(r"Watts=\S+(?: ExtSensors\w+=\S+)* Reason=", line)) for line in lines),
        sum(_total(_GPUS, _first(r" AllocTRES=(\S*)", head)) for head in heads)
        if tracked
        else None,
    )


def _first(pattern: str, line: str) -> str:
    match = re.search(pattern, line)
    return match[1] if match else ""


def _sdiag(content: bytes) -> Iterator[Value]:
    found = diagnostics.parse_text(content)
    shown = content.decode(errors="replace")
    section = re.split(r"\n\n|\nPending", shown.partition("by message type")[2])[0]
    counts = [int(count) for count in re.findall(r"count:(\d+)", section)]
    yield Value("types of requests", len(found.requests), len(counts))
    yield Value("requests", sum(found.requests.values()), sum(counts))
    threads = re.search(r"Server thread count:\s*(\d+)", shown)
    yield Value(
        "server threads", found.values.get("server_thread_count"), threads and int(threads[1])
    )


def _listed(
    parse: Callable[[bytes], model.Records[Any]], what: str, record: str
) -> Callable[[bytes], Iterator[Value]]:
    """A reader of text whose records begin as the pattern says."""

    def read(content: bytes) -> Iterator[Value]:
        records = parse(content)
        begun = len(re.findall(record, content.decode(errors="replace"), re.MULTILINE))
        yield Value("records not read", records.malformed, 0)
        yield Value(what, len(records.items), begun)

    return read


def _ping(content: bytes) -> Iterator[Value]:
    up = sum(controller.up for controller in text.parse_ping(content))
    yield Value("controllers up", up, content.count(b" is UP"))


_ERROR = re.compile(
    rb"\s*(?:(?:slurm_\w+(?: error)?|\w+: (?:error|fatal)): [^\n]*|Invalid job id specified"
    rb"|Slurm accounting storage is disabled)\s*",
)


def _answered(read: Callable[[bytes], Iterator[Value]]) -> Callable[[bytes], Iterator[Value]]:
    """The reader of a capture, unless it holds but errors of Slurm's."""

    def values(content: bytes) -> Iterator[Value]:
        if content.strip() and not _ERROR.sub(b"", content):
            raise NoAnswerError(content.decode(errors="replace").split("\n")[0])
        return read(content)

    return values


READERS = tuple(
    Reader("slurm", files, _answered(read))
    for files, read in (
        (("squeue*.txt",), _squeue),
        (("scontrol_show_node*.txt",), _nodes),
        (("sdiag*.txt",), _sdiag),
        (("scontrol_ping*.txt",), _ping),
        (
            ("sacct.txt", "sacct_*.txt"),
            _listed(
                accounting.parse_jobs,
                "ended runs",
                rf"^\d+{accounting.FIELD}.*{accounting.FIELD}\d",
            ),
        ),
        (
            ("sacctmgr*.txt",),
            _listed(accounting.parse_events, "events of nodes", r"^[^|\n]+\|\d+\|"),
        ),
    )
)
