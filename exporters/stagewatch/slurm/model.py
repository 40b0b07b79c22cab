"""The records of Slurm, in one form for the commands and slurmrestd of every version.

Every transport passes records with the field names of the JSON and values in any of Slurm's forms,
from 22.05 (OpenAPI v0.0.36) to 26.05 (data_parser v0.0.45) and in its text: a number that may be
unset is `7`, `null`, `"7"`, `"N/A"` or `{"set": true, "infinite": false, "number": 7}`; a state is
`"RUNNING"` or `["RUNNING", "COMPLETING"]`; a list is a list or one string with commas.  Unknown
fields are ignored.  Times are Unix seconds; `None` if Slurm does not know them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from stagewatch.core.state_file import BROKEN
from stagewatch.slurm.notation import (
    ENDED_STATES,
    GpuCounts,
    NodeGpus,
    array_tasks,
    gpus_of_request,
    gpus_of_tres,
    held_of,
    job_state,
    job_state_of_list,
    node_gpus,
    node_state,
    node_state_of_list,
    pending_reason,
)

Claim = tuple[int, str, tuple[int, ...]]
"""A job's claim to GPUs of a node: job id, node, indices. To be checked."""

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Records(Generic[T_co]):
    """The records of one answer, and the number of unreadable ones."""

    items: tuple[T_co, ...]
    malformed: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A job in the controller's list; an array's pending tasks are one record."""

    job_id: int
    array_job_id: int | None
    """The array's own id, for its tasks."""
    tasks: int
    """How many jobs this record represents: the pending tasks of an array, else 1."""
    state: str
    reason: str
    """Why it is pending, as a bounded name; empty in other states."""
    partitions: tuple[str, ...]
    """More than one while it waits in several."""
    user: str
    account: str
    node_list: str
    gpus: GpuCounts
    """GPUs that one task holds if running, or requests if pending."""
    submit: int | None
    eligible: int | None
    start: int | None
    end: int | None
    restarts: int
    exit_code: int = 0
    signal: int = 0
    gpus_per_node: GpuCounts = ()
    """The GPUs that it requested per node, if it did."""
    gres_detail: tuple[str, ...] = ()
    """What it holds on each of its nodes, if the source says so (`gpu:h200:2(IDX:0-1)`)."""
    preempted: int | None = None
    """When Slurm chose it for preemption and signalled it: it may still use its grace time."""

    @property
    def partition(self) -> str:
        """Its first partition; if it runs, it runs there."""
        return self.partitions[0] if self.partitions else ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the controller sees it."""

    name: str
    state: str
    """The base state: IDLE, MIXED, ALLOCATED, DOWN, ERROR, FUTURE, UNKNOWN."""
    flags: frozenset[str]
    partitions: tuple[str, ...]
    gpus: tuple[NodeGpus, ...]
    address: str
    reason: str
    reason_user: str
    reason_time: int | None


@dataclass(frozen=True, slots=True)
class RpcCount:
    """Requests of one message type or user since the controller's counters were last reset."""

    name: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """The controller's own statistics (`sdiag`)."""

    values: Mapping[str, float]
    """By JSON name; times in seconds."""
    by_type: tuple[RpcCount, ...] = ()
    by_user: tuple[RpcCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Controller:
    """One slurmctld in the answer of `scontrol ping`."""

    host: str
    role: str
    """primary, backup, backup2, ..."""
    up: bool


@dataclass(frozen=True, slots=True)
class EndedJob:
    """One run of a job that has ended; a requeued job has several."""

    job_id: int
    tasks: int
    state: str
    exit_code: int
    signal: int
    partition: str
    submit: int
    """When it was submitted or requeued; together with the id it identifies a run."""
    eligible: int | None
    start: int | None
    """`None` if it never started."""
    end: int


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A period in which a node was unusable, from accounting; `end` is None while it lasts."""

    node: str
    state: str
    start: int
    end: int | None
    reason: str


Object = Mapping[str, Any]
"""A record with the field names of Slurm's JSON."""

_UNSET = frozenset((0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF))
"""NO_VAL and INFINITE in 32 and 64 bits, as old versions print some of them."""
_NOTHING = frozenset(("", "N/A", "NONE", "None", "Unknown", "UNKNOWN", "(null)", "n/a", "INVALID"))


def number(value: Any) -> int | None:
    """A whole number, or the lower one of `4-8`; `None` if it is unset, infinite or no number."""
    if isinstance(value, str):
        head, dash, most = (value, "", "") if value.isdecimal() else value.partition("-")
        if not head.isdecimal() or len(head) > 19 or (dash and not most.isdecimal()):
            return None
        value = int(head)
    elif isinstance(value, dict):
        unset = value.get("infinite") or value.get("set") is False
        return None if unset else number(value.get("number"))
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not abs(value) <= 1e20:  # as NaN is not, either
        return None
    return None if value in _UNSET else int(value)


def moment(value: Any) -> int | None:
    """A Unix time; 0 means that there is none."""
    seconds = number(value)
    return seconds if seconds is not None and seconds > 0 else None


def text(value: Any) -> str:
    """A string; empty for other values, and for words such as N/A."""
    return value if isinstance(value, str) and value not in _NOTHING else ""


def names(value: Any) -> tuple[str, ...]:
    """The strings of a list, or of one string with commas."""
    if isinstance(value, str):
        return _names(value)
    listed = value if isinstance(value, list) else ()
    return tuple(sys.intern(part) for part in listed if isinstance(part, str) and part)


@lru_cache(maxsize=4096)
def _names(value: str) -> tuple[str, ...]:
    parts = text(value.strip()).split(",")
    return tuple(sys.intern(part.rstrip("*")) for part in parts if part)  # * is the default one


def inner(value: Any, *path: str) -> Any:
    """The value at a path of keys; `None` if there is none."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def objects(value: Any) -> Iterator[Object]:
    """The objects in a list; other values are ignored."""
    return (
        (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
    )


def exit_status(value: Any) -> tuple[int, int]:
    """Exit code and signal, from `code:signal`, a raw wait status, or an object."""
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal")
        signal_number = number(inner(signal, "id")) or number(inner(signal, "signal_id"))
        return number(value["return_code"]) or 0, signal_number or 0
    if isinstance(value, str) and ":" in value:
        code, _, shown = value.partition(":")
        return number(code) or 0, number(shown) or 0
    raw = number(value) or 0
    return (raw >> 8) & 0xFF, raw & 0x7F


T = TypeVar("T")


def read_all(
    records: Iterable[Any], read: Callable[[Any], T | None], malformed: int = 0
) -> Records[T]:
    """Read all records, and count unreadable ones; a reader returns `None` to skip a record."""
    items: list[T] = []
    for record in records:
        try:
            item = read(record)
        except BROKEN:
            malformed += 1
        else:
            if item is not None:
                items.append(item)
    return Records(tuple(items), malformed)


def required(value: int | None) -> int:
    """The number. Raises `ValueError` for `None`."""
    if value is None:
        raise ValueError("a number that must be there is not")
    return value


def _job_state(value: Any) -> str:
    return job_state_of_list(names(value)) if isinstance(value, list) else job_state(str(value))


def read_job(record: Object, tasks: int | None = None) -> Job:
    """A job of the queue; `tasks` is the number of tasks that it represents, if the record does "
    "not say."""
    shown = _job_state(record["job_state"])
    exit_code, signal = exit_status(record.get("exit_code"))
    array = number(record.get("array_job_id")) or None
    job_id = required(number(record["job_id"]))
    details = record.get("gres_detail")
    held = tuple(map(text, details)) if isinstance(details, list) else ()
    reason = text(record.get("state_description")) or text(record.get("state_reason"))
    return Job(
        job_id=job_id,
        array_job_id=array if array != job_id else None,
        tasks=tasks or tasks_of(text(record.get("array_task_string"))),
        state=sys.intern(shown),
        reason=pending_reason(reason) if shown == "PENDING" else "",
        partitions=names(record.get("partition")),
        user=sys.intern(text(record.get("user_name")) or str(number(record.get("user_id")) or "")),
        account=sys.intern(text(record.get("account"))),
        node_list=text(record.get("nodes")),
        gpus=_job_gpus(record, held),
        submit=moment(record.get("submit_time")),
        eligible=moment(record.get("eligible_time")),
        start=moment(record.get("start_time")),
        end=moment(record.get("end_time")),
        restarts=number(record.get("restart_cnt")) or 0,
        exit_code=exit_code,
        signal=signal,
        gpus_per_node=gpus_of_request(text(record.get("tres_per_node")), "", "", "", 1, 1, 1),
        gres_detail=held,
        preempted=moment(record.get("preempt_time")),
    )


def tasks_of(task_list: str) -> int:
    """The number of tasks in a list, even if it was cut short (`1,3,5...`); 1 for no list."""
    try:
        return array_tasks(task_list.removesuffix("...").rstrip(",-"))
    except ValueError:
        return 1


def _job_gpus(record: Object, held: tuple[str, ...]) -> GpuCounts:
    """Those that the job has, by its TRES or else of each node (Slurm 24.05 to 25.11 count none in
    the TRES of `--gpus-per-socket`); else those that it asks for."""
    allocated, asked = (
        gpus_of_tres(text(record.get(f"tres_{which}_str"))) for which in ("alloc", "req")
    )
    gpus = allocated if allocated is not None else held_of(*held) or asked
    if gpus is not None:
        return gpus
    node, job, socket, task = (
        text(record.get(f"tres_per_{unit}")) for unit in ("node", "job", "socket", "task")
    )
    nodes, sockets, tasks = (
        number(record.get(count)) or 1 for count in ("node_count", "sockets_per_node", "tasks")
    )
    return gpus_of_request(node, job, socket, task, nodes, sockets, tasks)


def read_node(record: Object) -> Node:
    """A node."""
    state = record["state"]
    if isinstance(state, list):
        base, flags = node_state_of_list(names(state))
    else:
        base, flags = node_state("+".join([str(state), *names(record.get("state_flags"))]))
    name = str(record["name"])
    given = str(record.get("reason") or "")  # without one the JSON names root, and no time
    reason = text(" ".join(given.split()))
    return Node(
        name=sys.intern(name),
        state=sys.intern(base),
        flags=flags,
        partitions=names(record.get("partitions")),
        gpus=_node_gpus(record),
        address=text(record.get("address")) or name,
        reason=reason,
        reason_user=text(record.get("reason_set_by_user")) if given else "",
        reason_time=moment(record.get("reason_changed_at")) if given else None,
    )


def _node_gpus(record: Object) -> tuple[NodeGpus, ...]:
    """The GPUs by GRES, or by the TRES in use if a version does not show the GRES in use."""
    used = text(record.get("gres_used"))
    gpus = node_gpus(text(record.get("gres")), used)
    if used or not gpus:
        return gpus
    allocated = dict(gpus_of_tres(text(record.get("tres_used"))) or ())
    if len(gpus) == 1:
        allocated = {gpus[0].type: sum(allocated.values())}
    return tuple(NodeGpus(of.type, of.configured, allocated.get(of.type, 0)) for of in gpus)


def read_ended(record: Object) -> EndedJob | None:
    """One run that accounting has recorded; `None` if it has not ended."""
    current, times = inner(record, "state", "current"), record.get("time")
    state = _job_state(current)
    submit, end = moment(inner(times, "submission")), moment(inner(times, "end"))
    if submit is None or end is None or state not in (*ENDED_STATES, "REQUEUED"):
        return None
    exit_code, signal = exit_status(record.get("exit_code"))
    return EndedJob(
        job_id=required(number(record["job_id"])),
        tasks=tasks_of(text(inner(record, "array", "task"))),
        state=sys.intern(state),
        exit_code=exit_code,
        signal=signal,
        partition=sys.intern(text(record.get("partition")).partition(",")[0]),
        submit=submit,
        eligible=moment(inner(times, "eligible")),
        start=moment(inner(times, "start")) if inner(record, "tres", "allocated") else None,
        end=end,
    )
