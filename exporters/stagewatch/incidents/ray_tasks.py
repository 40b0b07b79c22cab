"""Ray's state API: the tasks that the processes of a job wait for.

https://docs.ray.io/en/latest/ray-observability/reference/api.html (`list_tasks`), from Ray 2.7 on.
For every unfinished task, the dashboard has the process that submitted it and the one that runs it;
a process that stands still waits for the tasks that it submitted.  All processes of Ray are
connected to each other, so their connections show nothing.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stagewatch.incidents.talk import http, listeners

DEADLINE_SECONDS = 3.0
"""Time for one question; there are three."""
PORT = 8265
"""The usual port of the dashboard, on the head node of a cluster."""
MAX_TASKS = 1000
MAX_BYTES = 8 << 20
MAX_STEPS = 3
"""The most steps through processes that are not ranks."""
MAX_NAME = 80
MAX_WAITS = 16
"""The most waits of one process."""
LASTS_SECONDS = 5.0
"""Seconds for which a task must have been in its state to count."""
SLACK_SECONDS = 1.0
"""Seconds by which Ray's clock may be behind that of the mark."""
RECENT_SECONDS = 300.0
"""Seconds before the last mark of progress; an older task may have run for ever."""
_DRIVER = "f" * 40
"""The task number of a driver; it stands before the number of its job."""
_TASKS = "/api/v0/tasks?limit=1000&detail=1&filter_keys=state&filter_predicates=!%3D"
_TASKS += "&filter_values=FINISHED"
_ENDED = ("FINISHED", "FAILED")
_WITHOUT_PLACE = "PENDING_NODE_ASSIGNMENT"

Waits = list[tuple[int, list[dict[str, Any]]]]
"""By process, what it waits for: the pids that run its tasks, or the tasks that no process runs."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task that has not ended."""

    id: str
    name: str
    state: str
    parent: str
    actor: str
    pid: int
    """The process on this node that runs it; 0 if none does."""
    other_node: str
    """The process on another node that runs it."""
    created: float


def waits(
    targets: Sequence[Mapping[str, Any]], timeout: float = DEADLINE_SECONDS
) -> tuple[list[str], Waits]:
    """The waits of processes that Ray runs; with a line if Ray does not answer.

    This asks the dashboard only if it belongs to the user of one of these processes and listens on
    the port of that process's RAY_API_SERVER_ADDRESS, whatever host this names.  The question has
    the process's RAY_AUTH_TOKEN.
    """
    for target in targets:
        environ = target["environ"]
        wanted = _port(environ) if target["reachable"] and "RAY_JOB_ID" in environ else None
        for address in ((at, on) for at, on, _ in listeners(target["uid"]) if on == wanted):
            ask = partial(_ask, address, environ.get("RAY_AUTH_TOKEN", ""), timeout)
            try:
                return [], _waits(targets, ask)
            except OSError as error:
                where = f"Ray's dashboard at {address[0]}:{address[1]}"
                return [f"{where}: {error.strerror or error}"], []
            except Exception as error:  # a hostile answer raises whatever it likes
                return [f"Ray's dashboard sends nonsense ({type(error).__name__})"], []
    return [], []


def _port(environ: Mapping[str, str]) -> int:
    named = environ.get("RAY_API_SERVER_ADDRESS", "").rstrip("/").rpartition(":")[2]
    return int(named) if named.isascii() and named.isdecimal() else PORT


def _ask(address: tuple[str, int], token: str, timeout: float, path: str) -> Any:
    header = f"Authorization: Bearer {token}\r\n" if token and token.isprintable() else ""
    return json.loads(http(address, f"GET {path}", timeout, MAX_BYTES, header))


def _waits(targets: Sequence[Mapping[str, Any]], ask: Callable[[str], Any]) -> Waits:
    here = {
        str(one["node_id"])
        for one in ask("/api/v0/nodes?limit=1000")["data"]["result"]["result"]
        if one["is_head_node"] is True
    }
    rows = ask(_TASKS)["data"]["result"]["result"][:MAX_TASKS]
    drivers = {
        _DRIVER + str(one["job_id"]): int(one["driver_info"]["pid"])
        for one in ask("/api/jobs/")
        if one.get("driver_info")
    }
    tasks = [task for one in rows if (task := _task(one, here)) is not None]
    return list(_of_ranks(tasks, drivers, {one["pid"]: one["since"] for one in targets}))


def _task(row: Mapping[str, Any], here: set[str]) -> Task | None:
    """The task; `None` if it has ended, or if its state is too new."""
    moments = [float(one["created_ms"]) / 1e3 for one in row["events"] or ()]
    if row["state"] in _ENDED or not moments or time.time() - max(moments) < LASTS_SECONDS:
        return None
    pid = int(row["worker_pid"] or 0) if row["state"].startswith("RUNNING") else 0
    other = f"pid {pid} of another node" if pid and row["node_id"] not in here else ""
    return Task(
        id=_text(row["task_id"]),
        name=_text(row["name"]),
        state=_text(row["state"]),
        parent=_text(row["parent_task_id"]),
        actor=_text(row["actor_id"]),
        pid=0 if other else pid,
        other_node=other,
        created=min(moments),
    )


def _text(value: Any) -> str:
    return str(value or "")[:MAX_NAME]


def _of_ranks(
    tasks: Sequence[Task], drivers: Mapping[str, int], since: Mapping[int, float]
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The waits of every rank that runs a task, or is a driver with an unfinished one."""
    children = defaultdict(list)
    for task in tasks:
        children[task.parent].append(task)
    runs = defaultdict(list)
    actors: dict[str, Task] = {}
    for task in tasks:
        if task.pid:
            runs[task.pid].append(task.id)
        if task.pid or task.other_node:
            actors[task.actor] = task
    for number, pid in drivers.items():
        if number in children:
            runs[pid].append(number)

    def awaited(pid: int, last: float) -> list[Task]:
        """The tasks that a process has submitted since its last mark; if none, shortly before."""
        mine = [one for number in runs[pid] for one in children[number]]
        return [one for one in mine if one.created >= last - SLACK_SECONDS] or [
            one for one in mine if one.created >= last - RECENT_SECONDS
        ]

    def ends(pid: int, last: float, steps: int) -> Iterator[dict[str, Any]]:
        for task in awaited(pid, last):
            runner = task if task.pid or task.other_node else actors.get(task.actor, task)
            told = {"pid": runner.pid, "task": runner.name, "who": _who(task, runner)}
            further = runner.pid and runner.pid not in since and steps < MAX_STEPS
            yield from list(ends(runner.pid, 0.0, steps + 1) if further else ()) or [told]

    for pid in since.keys() & runs.keys():
        found = {json.dumps(one): one for one in ends(pid, since[pid], 0) if one["pid"] != pid}
        yield pid, list(found.values())[:MAX_WAITS]


def _who(task: Task, runner: Task) -> str:
    """Who should run a task, in words."""
    if runner.pid or runner.other_node:
        return f"{runner.name} ({runner.other_node or f'pid {runner.pid}'})"
    if task.state == _WITHOUT_PLACE:
        return f"a place for {task.name}"
    return f"{task.name} ({task.state.lower().replace('_', ' ')})"
