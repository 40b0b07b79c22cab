"""Slurm's text: jobs from `squeue`; nodes, reservations, licences and controllers from `scontrol`.

squeue prints records with separators of our own.  No field that users may write freely (names,
comments, paths) is asked for, so that no job can break or forge a record.  `--array` gives each
pending task of an array its own record: without it squeue folds tasks with different reasons into
one, at a cost that grows with the square of the queue.  https://slurm.schedmd.com/squeue.html

scontrol prints one line of `Name=value` pairs for each record, a node's free text (Reason, Comment,
Extra) after everything structural, with its line breaks turned into spaces.  A job's name and
comment stand among its details and may imitate anything, so what is read there is a claim, to be
held against what the nodes say.  https://slurm.schedmd.com/scontrol.html
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeVar

from stagewatch.core.errors import NoData, SourceError
from stagewatch.slurm.gres import gpus_of_request, gpus_of_tres, indices_of, node_gpus
from stagewatch.slurm.hosts import expand
from stagewatch.slurm.model import (
    Claim,
    Controller,
    GpuCounts,
    Job,
    License,
    Node,
    NodeGpus,
    Records,
    Reservation,
)
from stagewatch.slurm.states import job_state, node_state, pending_reason

FIELD = "\x1f"
RECORD = "\x1e"
_NOTHING = frozenset(("", "N/A", "NONE", "None", "Unknown", "UNKNOWN", "(null)", "n/a", "INVALID"))


def seconds(text: str) -> int | None:
    """A time under SLURM_TIME_FORMAT=%s; `None` where Slurm does not know it."""
    if text in _NOTHING or not text.isdecimal():
        return None
    value = int(text)
    return value if 0 < value < 0xFFFFFFFE else None


def number(text: str) -> int:
    """A count; 0 if it is missing."""
    return int(text) if text.isdecimal() else 0


def name_of(text: str) -> str:
    """A name; empty for one of the words that stand for none."""
    text = text.strip()
    return "" if text in _NOTHING else text


def records(output: bytes, fields: int) -> Iterator[tuple[list[str] | None, int]]:
    """The records of output with our own separators; `None` for one of another shape.

    Equal neighbours, such as the pending tasks of an array, come once with their number.  One
    record at a time is taken apart: all of them at once would need ten times the output's size.
    """
    for raw, times in _chunks(output):
        values = raw.decode(errors="replace").split(FIELD)
        if len(values) == fields:
            yield values, times
        elif raw.strip():
            yield None, times


def _chunks(output: bytes) -> Iterator[tuple[bytes, int]]:
    """Split output at the separators without ever holding all of it twice."""
    separator = RECORD.encode()
    last, times, start = b"", 0, 0
    while start < len(output):
        end = output.find(separator, start)
        end = len(output) if end < 0 else end
        chunk = output[start:end].lstrip(b"\n")
        start = end + 1
        if chunk == last:
            times += 1
            continue
        if times:
            yield last, times
        last, times = chunk, 1
    if times:
        yield last, times


def split_pairs(line: str) -> Iterator[tuple[str, str]]:
    """Names and values of `A=1 B=two words C=3`, as far as values hold no ` Name=` themselves."""
    name = ""
    words: list[str] = []
    for word in line.split(" "):
        key, equals, value = word.partition("=")
        if equals and key[:1].isupper() and key.replace("_", "").replace(":", "").isalnum():
            if name:
                yield name, " ".join(words)
            name, words = key, [value]
        else:
            words.append(word)
    if name:
        yield name, " ".join(words)


_JOB_FIELDS = (
    "JobID",
    "ArrayJobID",
    "State",
    "Reason",
    "Partition",
    "UserName",
    "Account",
    "NumNodes",
    "NumTasks",
    "NodeList",
    "tres-alloc",
    "tres-per-node",
    "tres-per-job",
    "tres-per-task",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "RestartCnt",
    "exit_code",
)
JOBS = (
    "--noheader",
    "--all",
    "--states=all",
    "--array",
    "--sort=i",
    "--Format="
    + ",".join(f"{name}:{FIELD}" for name in _JOB_FIELDS[:-1])
    + f",{_JOB_FIELDS[-1]}:{RECORD}",
)


def parse_jobs(output: bytes) -> Records[Job]:
    """The jobs in squeue's output.  Raises `SourceError` where it is no list of jobs."""
    jobs: list[Job] = []
    malformed = 0
    for values, times in records(output, len(_JOB_FIELDS)):
        try:
            if values is None:
                raise ValueError("a record of another shape")
            jobs.append(_job(values, times))
        except ValueError:
            malformed += times
    if malformed and not jobs:
        raise SourceError(f"squeue printed something that is not a list: {bytes(output[:80])!r}")
    return Records(tuple(jobs), malformed)


def _job(values: list[str], tasks: int) -> Job:
    job_id, array_id, state, reason, partition, user, account, nodes, processes = values[:9]
    node_list, tres, per_node, per_job, per_task = values[9:14]
    submit, eligible, start, end, restarts, status = values[14:]
    exit_code, signal = _exit(status)
    number_of_nodes = _least(nodes)
    state = job_state(state)
    return Job(
        job_id=int(job_id),
        array_job_id=int(array_id) if array_id.isdecimal() and array_id != job_id else None,
        tasks=tasks,
        state=sys.intern(state),
        reason=pending_reason(reason) if state == "PENDING" else "",
        partitions=_names(partition),
        user=sys.intern(user),
        account=sys.intern(name_of(account)),
        nodes=number_of_nodes,
        node_list=node_list,
        gpus=_job_gpus(tres, per_node, per_job, per_task, number_of_nodes, _least(processes)),
        submit=seconds(submit),
        eligible=seconds(eligible),
        start=seconds(start),
        end=seconds(end),
        restarts=number(restarts),
        exit_code=exit_code,
        signal=signal,
    )


def _job_gpus(
    tres: str, per_node: str, per_job: str, per_task: str, nodes: int, tasks: int
) -> GpuCounts:
    gpus = gpus_of_tres(tres)
    if gpus is not None:
        return gpus
    if "gpu" not in per_node + per_job + per_task:
        return ()
    return gpus_of_request(name_of(per_node), name_of(per_job), name_of(per_task), nodes, tasks)


def _least(text: str) -> int:
    """`4`, or the least of `4-8`."""
    return number(text.partition("-")[0])


@lru_cache(maxsize=4096)
def _names(partition: str) -> tuple[str, ...]:
    return tuple(name.rstrip("*") for name in partition.split(",") if name)


@lru_cache(maxsize=1024)
def _exit(status: str) -> tuple[int, int]:
    """Exit code and signal of a raw wait status (22.05), or of `code:signal`."""
    code, colon, signal = status.partition(":")
    if colon:
        return number(code), number(signal)
    raw = number(code)
    return (raw >> 8) & 0xFF, raw & 0x7F


NODES = ("--oneliner", "--details", "--all", "show", "nodes")
RESERVATIONS = ("--oneliner", "show", "reservations")
LICENSES = ("--oneliner", "show", "licenses")
PING = ("ping",)

_SIGNED = re.compile(r" ?\[([^\s\[\]@]+)@(\w+)\]")
_CONTROLLER = re.compile(r"Slurmctld\((\w+)\) at (\S+) is (\w+)")
T = TypeVar("T")


def parse_nodes(output: bytes) -> Records[Node]:
    """The nodes of `scontrol -o -d show nodes`."""
    return _lines(output, "NodeName=", _node, "nodes")


def parse_reservations(output: bytes) -> Records[Reservation]:
    """The reservations; that there are none is a good answer too."""
    if b"No reservations in the system" in output:
        return Records(())
    return _lines(output, "ReservationName=", _reservation, "reservations")


def parse_licenses(output: bytes) -> Records[License]:
    """The licences that the controller counts; that there are none is a good answer too."""
    if b"No licenses configured" in output:
        return Records(())
    return _lines(output, "LicenseName=", _license, "licenses")


def parse_ping(output: bytes) -> tuple[Controller, ...]:
    """Which controllers answer; UP and DOWN are all that Slurm says."""
    controllers = tuple(
        Controller(host=match[2], role=match[1], up=match[3] == "UP")
        for match in _CONTROLLER.finditer(output.decode(errors="replace"))
    )
    if not controllers:
        raise SourceError(f"scontrol ping printed something unknown: {output[:80]!r}")
    return controllers


def _lines(output: bytes, start: str, parse: Callable[[str], T], what: str) -> Records[T]:
    """Parse the records that begin with `start`; any other line continues the one before."""
    text = output.decode(errors="replace")
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith(start):
            lines.append(line)
        elif lines and line.strip():
            lines[-1] += " " + line
    if not lines:
        if not text.strip():
            raise NoData(f"there are no {what}")
        raise SourceError(f"scontrol printed no {what}: {text[:80]!r}")
    items, malformed = [], 0
    for line in lines:
        try:
            items.append(parse(line))
        except (ValueError, KeyError):
            malformed += 1
    if not items:
        raise SourceError(f"scontrol printed {what} of an unknown shape: {lines[0][:80]!r}")
    return Records(tuple(items), malformed)


def _node(line: str) -> Node:
    structure, _, free_text = line.partition(" Reason=")
    pairs = dict(split_pairs(structure))
    base, flags = node_state(pairs["State"])
    reason, user, when = _reason(free_text)
    name = pairs["NodeName"]
    return Node(
        name=sys.intern(name),
        state=sys.intern(base),
        flags=flags,
        partitions=_partitions(pairs.get("Partitions", "")),
        gpus=_node_gpus(pairs),
        cpus=number(pairs.get("CPUTot", "")),
        cpus_allocated=number(pairs.get("CPUAlloc", "")),
        address=name_of(pairs.get("NodeAddr", "")) or name,
        reason=reason,
        reason_user=user,
        reason_time=when,
        boot_time=seconds(pairs.get("BootTime", "").strip()),
        slurmd_start_time=seconds(pairs.get("SlurmdStartTime", "").strip()),
    )


def _node_gpus(pairs: dict[str, str]) -> tuple[NodeGpus, ...]:
    """The GPUs by Gres and GresUsed, or by AllocTRES where a version does not print GresUsed."""
    used = pairs.get("GresUsed", "").strip()
    gpus = node_gpus(pairs.get("Gres", "").strip(), used)
    if used or not gpus:
        return gpus
    allocated = dict(gpus_of_tres(pairs.get("AllocTRES", "").strip()) or ())
    if len(gpus) == 1:
        allocated = {gpus[0].type: sum(allocated.values())}
    return tuple(
        NodeGpus(of_type.type, of_type.configured, allocated.get(of_type.type, 0))
        for of_type in gpus
    )


@lru_cache(maxsize=1024)
def _partitions(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.strip().split(",") if name and name != "(null)")


def _reason(text: str) -> tuple[str, str, int | None]:
    """Reason, user and time of `text [user@time] more lines`; the text may hold brackets."""
    text = text.partition(" Comment=")[0].partition(" Extra=")[0]
    signatures = list(_SIGNED.finditer(text))
    if not signatures:
        return name_of(" ".join(text.split())), "", None
    last = signatures[-1]
    reason = f"{text[: last.start()]} {text[last.end() :]}"
    return name_of(" ".join(reason.split())), last[1], seconds(last[2])


def _reservation(line: str) -> Reservation:
    pairs = dict(split_pairs(line))
    return Reservation(
        name=pairs["ReservationName"],
        state=name_of(pairs.get("State", "")) or "UNKNOWN",
        start=seconds(pairs.get("StartTime", "")),
        end=seconds(pairs.get("EndTime", "")),
        nodes=number(pairs.get("NodeCnt", "")),
        node_list=name_of(pairs.get("Nodes", "")),
        flags=tuple(flag for flag in name_of(pairs.get("Flags", "")).split(",") if flag),
    )


def _license(line: str) -> License:
    pairs = dict(split_pairs(line))
    return License(
        name=pairs["LicenseName"],
        total=number(pairs["Total"]),
        used=number(pairs.get("Used", "")),
        free=number(pairs["Free"]) if "Free" in pairs else None,
        reserved=number(pairs["Reserved"]) if "Reserved" in pairs else None,
    )


JOB_DETAILS = ("--oneliner", "--details", "--all", "show", "jobs")

_JOB_ID = re.compile(r"JobId=(\d+)\s")
_ON_NODES = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=(\S+)")


def parse_claims(output: bytes) -> Records[Claim]:
    """All claims of jobs to GPUs in `scontrol show jobs`, the impossible ones too."""
    claims: list[Claim] = []
    malformed = 0
    for line in output.decode(errors="replace").split("\n"):
        job = _JOB_ID.match(line)
        if not job:
            continue
        for nodes, gres in _ON_NODES.findall(line):
            indices = indices_of(gres)
            try:
                names = expand(nodes)
            except ValueError:
                malformed += 1
                continue
            claims += [(int(job[1]), name, indices) for name in names if indices]
    return Records(tuple(claims), malformed)
