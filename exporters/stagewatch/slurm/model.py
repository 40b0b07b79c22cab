"""The records of Slurm, and the readers of the values in its text.

Times are Unix seconds; `None` if Slurm does not know them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Generic, TypeVar

from stagewatch.core.state_file import BROKEN
from stagewatch.slurm.notation import GpuCounts, NodeGpus, array_tasks

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
    gpus_per_node: GpuCounts = ()
    """The GPUs that it requested per node, if it did."""
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
class Diagnostics:
    """The controller's own statistics (`sdiag`)."""

    values: Mapping[str, float]
    """By the label in lower case; times in seconds."""
    requests: Mapping[str, int]
    """By message type, since the controller's counters were last reset."""


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
    partition: str
    submit: int
    """When it was submitted or requeued; together with the id it identifies a run."""
    eligible: int | None
    start: int | None
    """`None` if it never started."""
    end: int
    exit_code: int = 0
    """0 in the queue, which does not say."""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A period in which a node was unusable, from accounting; `end` is None while it lasts."""

    node: str
    state: str
    start: int
    end: int | None
    reason: str


_UNSET = frozenset((0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF))
"""NO_VAL and INFINITE in 32 and 64 bits, as old versions print some of them."""
_NOTHING = frozenset(("", "N/A", "NONE", "None", "Unknown", "UNKNOWN", "(null)", "n/a", "INVALID"))


def number(value: str) -> int | None:
    """A whole number, or the lower one of `4-8`; `None` if it is unset, infinite or no number."""
    head, dash, most = value.partition("-")
    if not head.isdecimal() or len(head) > 19 or (dash and not most.isdecimal()):
        return None
    found = int(head)
    return None if found in _UNSET else found


def moment(value: str) -> int | None:
    """A Unix time; 0 means that there is none."""
    return number(value) or None


def text(value: str) -> str:
    """A string; empty for words such as N/A."""
    return "" if value in _NOTHING else value


@lru_cache(maxsize=4096)
def names(value: str) -> tuple[str, ...]:
    """The names between commas; a `*` marks the default one."""
    parts = text(value.strip()).split(",")
    return tuple(sys.intern(part.rstrip("*")) for part in parts if part)


T = TypeVar("T")


def read_all(records: Iterable[Any], read: Callable[[Any], T | None]) -> Records[T]:
    """Read all records, and count unreadable ones; a reader returns `None` to skip a record."""
    items: list[T] = []
    malformed = 0
    for record in records:
        try:
            item = read(record)
        except BROKEN:
            malformed += 1
        else:
            if item is not None:
                items.append(item)
    return Records(tuple(items), malformed)


def joined(output: bytes, begins: Callable[[str], bool]) -> Iterator[str]:
    """The records of an output; a line that begins none continues the one before."""
    record = ""
    for raw in BytesIO(output):
        line = raw.decode(errors="replace").rstrip("\n")
        if begins(line):
            if record:
                yield record
            record = line
        elif record and line.strip():
            record += " " + line
    if record:
        yield record


def required(value: int | None) -> int:
    """The number. Raises `ValueError` for `None`."""
    if value is None:
        raise ValueError("a number that must be there is not")
    return value


def tasks_of(task_list: str) -> int:
    """The number of tasks in a list, even if it was cut short (`1,3,5...`); 1 for no list."""
    try:
        return array_tasks(task_list.removesuffix("...").rstrip(",-"))
    except ValueError:
        return 1
