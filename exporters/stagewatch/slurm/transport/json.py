"""Jobs, nodes and the rest out of Slurm's JSON: of the commands' --json and of slurmrestd alike.

Takes every shape from 22.05 (OpenAPI v0.0.36 to v0.0.38) to 26.05 (data_parser v0.0.42 to v0.0.45).
Fields that are not known are passed over, and records without what matters are counted.  A number
that may be unset is `7`, `null`, `"7"` or `{"set": true, "infinite": false, "number": 7}`; a state
is `"RUNNING"` or `["RUNNING", "COMPLETING"]`; a list is a list or one string with commas.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from stagewatch.core.errors import SourceError
from stagewatch.slurm.gres import gpus_of_request, gpus_of_tres, node_gpus
from stagewatch.slurm.model import (
    Controller,
    EndedJob,
    GpuCounts,
    Job,
    License,
    Node,
    Records,
    Reservation,
)
from stagewatch.slurm.states import (
    ENDED_STATES,
    job_state,
    job_state_of_list,
    node_state,
    node_state_of_list,
    pending_reason,
)
from stagewatch.slurm.transport.accounting import array_tasks

Object = Mapping[str, Any]
_UNSET = frozenset((0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF))
"""NO_VAL and INFINITE in 32 and 64 bits, as old versions print some of them."""


def number(value: Any) -> int | None:
    """A whole number; `None` where it is unset, infinite or of no known shape."""
    if isinstance(value, Mapping):
        if value.get("infinite") or value.get("set") is False:
            return None
        return number(value.get("number"))
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 20 else None
    if isinstance(value, float):
        return int(value) if abs(value) < 1e18 else None
    return value if isinstance(value, int) and value not in _UNSET else None


def moment(value: Any) -> int | None:
    """A Unix time; 0 means that there is none."""
    seconds = number(value)
    return seconds if seconds is not None and seconds > 0 else None


def text(value: Any) -> str:
    """A string; empty for anything else."""
    return value if isinstance(value, str) else ""


def names(value: Any) -> list[str]:
    """The strings of a list, or of one string with commas."""
    if isinstance(value, str):
        return [part for part in value.split(",") if part]
    if isinstance(value, list):
        return [part for part in value if isinstance(part, str) and part]
    return []


def inner(value: Any, *path: str) -> Any:
    """The value at a path of keys; `None` if there is none."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def objects(value: Any) -> Iterator[Object]:
    """The objects of a list, without other values in it."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping):
                yield item


def exit_status(value: Any) -> tuple[int, int]:
    """Exit code and signal: of a raw wait status, or of an object with `return_code`."""
    if isinstance(value, Mapping) and "return_code" in value:
        code = number(value.get("return_code")) or 0
        signal = value.get("signal")
        signal_number = inner(signal, "id")
        if signal_number is None:
            signal_number = inner(signal, "signal_id")
        return code, number(signal_number) or 0
    raw = number(value) or 0
    return (raw >> 8) & 0xFF, raw & 0x7F


T = TypeVar("T")


def document(output: bytes, what: str) -> Object:
    """The JSON object in an answer.

    Raises `SourceError` where it is none, or where it says of itself that it failed.
    """
    try:
        answer = json.loads(output.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{what}: not JSON, or cut short: {output[:60]!r}") from error
    if not isinstance(answer, dict):
        raise SourceError(f"{what}: not a JSON object: {output[:60]!r}")
    for refusal in objects(answer.get("errors")):
        complaint = text(refusal.get("description")) or text(refusal.get("error"))
        raise SourceError(f"{what}: {(complaint or 'an unknown error')[:200]}")
    return answer


def jobs(answer: Object) -> Records[Job]:
    """The queue."""
    return _records(answer, "jobs", _job)


def nodes(answer: Object) -> Records[Node]:
    """The nodes."""
    return _records(answer, "nodes", _node)


def reservations(answer: Object) -> Records[Reservation]:
    """The reservations, of which there may be none."""
    return _records(answer, "reservations", _reservation)


def licenses(answer: Object) -> Records[License]:
    """The licences, of which there may be none."""
    return _records(answer, "licenses", _license)


def ended_jobs(answer: Object) -> Records[EndedJob]:
    """Runs from slurmdbd that have ended."""
    records = _records(answer, "jobs", _ended)
    return Records(tuple(job for job in records.items if job is not None), records.malformed)


def ping(answer: Object) -> tuple[Controller, ...]:
    """The controllers, in the shapes of `ping`, `pinged` and `responding`."""
    controllers = []
    for position, record in enumerate(objects(answer.get("pings"))):
        up = record.get("responding")
        if not isinstance(up, bool):
            up = (text(record.get("ping")) or text(record.get("pinged"))).upper() == "UP"
        role = text(record.get("mode"))
        if not role:
            primary = record.get("primary")
            role = (
                "primary"
                if (primary if isinstance(primary, bool) else position == 0)
                else ("backup" if position <= 1 else f"backup{position}")
            )
        controllers.append(Controller(text(record.get("hostname")) or "unknown", role, up=up))
    if not controllers:
        raise SourceError("ping: no controller in the answer")
    return tuple(controllers)


def _records(answer: Object, what: str, parse: Callable[[Object], T]) -> Records[T]:
    listed = answer.get(what)
    if not isinstance(listed, list):
        raise SourceError(f"there is no list of {what} in the answer")
    items: list[T] = []
    malformed = len(listed) - sum(1 for _ in objects(listed))
    for record in objects(listed):
        try:
            items.append(parse(record))
        except (KeyError, TypeError, ValueError):
            malformed += 1
    if malformed and not items:
        raise SourceError(f"{what} are of an unknown shape: {str(listed[0])[:80]}")
    return Records(tuple(items), malformed)


def _required(value: int | None) -> int:
    if value is None:
        raise ValueError("a number that must be there is not")
    return value


def _job(record: Object) -> Job:
    state = record["job_state"]
    shown = job_state_of_list(state) if isinstance(state, list) else job_state(str(state))
    exit_code, signal = exit_status(record.get("exit_code"))
    array = number(record.get("array_job_id")) or None
    job_id = _required(number(record["job_id"]))
    reason = text(record.get("state_description")) or text(record.get("state_reason"))
    return Job(
        job_id=job_id,
        array_job_id=array if array != job_id else None,
        tasks=_tasks(text(record.get("array_task_string"))),
        state=sys.intern(shown),
        reason=sys.intern(pending_reason(reason)) if shown == "PENDING" else "",
        partitions=tuple(map(sys.intern, names(record.get("partition")))),
        user=sys.intern(text(record.get("user_name")) or str(number(record.get("user_id")) or "")),
        account=sys.intern(text(record.get("account"))),
        nodes=number(record.get("node_count")) or 0,
        node_list=text(record.get("nodes")),
        gpus=_gpus(record),
        submit=moment(record.get("submit_time")),
        eligible=moment(record.get("eligible_time")),
        start=moment(record.get("start_time")),
        end=moment(record.get("end_time")),
        restarts=number(record.get("restart_cnt")) or 0,
        exit_code=exit_code,
        signal=signal,
        gres_detail=tuple(names(record.get("gres_detail"))),
    )


def _tasks(task_list: str) -> int:
    """The number of tasks in an array's record, also of a list that was cut short (`1,3,5...`)."""
    if not task_list or task_list == "N/A":
        return 1
    try:
        return array_tasks(task_list.removesuffix("...").rstrip(",-"))
    except ValueError:
        return 1


def _gpus(record: Object) -> GpuCounts:
    for key in ("tres_alloc_str", "tres_req_str"):
        gpus = gpus_of_tres(text(record.get(key)))
        if gpus is not None:
            return gpus
    per_node, per_job, per_task = (
        text(record.get(f"tres_per_{unit}")) for unit in ("node", "job", "task")
    )
    if "gpu" not in per_node + per_job + per_task:
        return ()
    node_count, tasks = number(record.get("node_count")) or 1, number(record.get("tasks")) or 1
    return gpus_of_request(per_node, per_job, per_task, node_count, tasks)


def _node(record: Object) -> Node:
    state = record["state"]
    if isinstance(state, list):
        base, flags = node_state_of_list(names(state))
    else:
        base, flags = node_state("+".join([str(state), *names(record.get("state_flags"))]))
    name = str(record["name"])
    return Node(
        name=sys.intern(name),
        state=sys.intern(base),
        flags=flags,
        partitions=tuple(map(sys.intern, names(record.get("partitions")))),
        gpus=node_gpus(text(record.get("gres")), text(record.get("gres_used"))),
        cpus=number(record.get("cpus")) or 0,
        cpus_allocated=number(record.get("alloc_cpus")) or 0,
        address=text(record.get("address")) or name,
        reason=" ".join(text(record.get("reason")).split()),
        reason_user=text(record.get("reason_set_by_user")),
        reason_time=moment(record.get("reason_changed_at")),
        boot_time=moment(record.get("boot_time")),
        slurmd_start_time=moment(record.get("slurmd_start_time")),
    )


def _reservation(record: Object) -> Reservation:
    start, end = moment(record.get("start_time")), moment(record.get("end_time"))
    return Reservation(
        name=str(record["name"]),
        state="",
        start=start,
        end=end,
        nodes=number(record.get("node_count")) or 0,
        node_list=text(record.get("node_list")),
        flags=tuple(names(record.get("flags"))),
    )


def _license(record: Object) -> License:
    return License(
        name=str(record["LicenseName"]),
        total=_required(number(record.get("Total"))),
        used=number(record.get("Used")) or 0,
        free=number(record.get("Free")),
        reserved=number(record.get("Reserved")),
    )


def _ended(record: Object) -> EndedJob | None:
    """Read one run; `None` if it has not ended."""
    current: Any = inner(record, "state", "current")
    state = job_state_of_list(current) if isinstance(current, list) else job_state(str(current))
    submit, end = moment(inner(record, "time", "submission")), moment(inner(record, "time", "end"))
    if submit is None or end is None or state not in (*ENDED_STATES, "REQUEUED"):
        return None
    exit_code, signal = exit_status(record.get("exit_code"))
    started = bool(inner(record, "tres", "allocated"))
    partition = text(record.get("partition")).partition(",")[0]
    return EndedJob(
        job_id=_required(number(record["job_id"])),
        tasks=_tasks(text(inner(record, "array", "task"))),
        state=sys.intern(state),
        exit_code=exit_code,
        signal=signal,
        partition=sys.intern(partition),
        user=sys.intern(text(record.get("user"))),
        account=sys.intern(text(record.get("account"))),
        submit=submit,
        eligible=moment(inner(record, "time", "eligible")),
        start=moment(inner(record, "time", "start")) if started else None,
        end=end,
    )
