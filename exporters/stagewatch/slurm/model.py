"""What every Slurm source is read into: one shape for text, JSON and REST of every version.

Times are Unix seconds; `None` where Slurm does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

GpuCounts = tuple[tuple[str, int], ...]
"""GPUs by type in lower case, sorted; the type is empty where none was named."""

Claim = tuple[int, str, tuple[int, ...]]
"""Which GPUs of which node a job says it has: job id, node, indices.  To be checked."""

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Records(Generic[T_co]):
    """The records of one answer, and how many of them could not be read."""

    items: tuple[T_co, ...]
    malformed: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the controller lists it; an array's pending tasks are one record."""

    job_id: int
    array_job_id: int | None
    """The array's own id, for its tasks."""
    tasks: int
    """How many jobs this record stands for: the pending tasks of an array, else 1."""
    state: str
    reason: str
    """Why it is pending, as a bounded name; empty in other states."""
    partitions: tuple[str, ...]
    """More than one while it waits in several."""
    user: str
    account: str
    nodes: int
    node_list: str
    gpus: GpuCounts
    """Held by one task if running, asked for if pending."""
    submit: int | None
    eligible: int | None
    start: int | None
    end: int | None
    restarts: int
    exit_code: int = 0
    signal: int = 0
    gres_detail: tuple[str, ...] = ()
    """Per node, what it holds there, where the source says (`gpu:h200:2(IDX:0-1)`)."""

    @property
    def partition(self) -> str:
        """The first of its partitions: where it runs, if it does."""
        return self.partitions[0] if self.partitions else ""


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of one type in a node."""

    type: str
    configured: int
    allocated: int
    indices: tuple[int, ...] = ()
    """Indices of the allocated ones, where Slurm says."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the controller sees it."""

    name: str
    state: str
    """The base state: IDLE, MIXED, ALLOCATED, DOWN, ERROR, FUTURE, UNKNOWN."""
    flags: frozenset[str]
    partitions: tuple[str, ...]
    gpus: tuple[NodeGpus, ...]
    cpus: int
    cpus_allocated: int
    address: str
    reason: str
    reason_user: str
    reason_time: int | None
    boot_time: int | None
    slurmd_start_time: int | None


@dataclass(frozen=True, slots=True)
class RpcCount:
    """Requests of one message type or user since the controller's counters were last reset."""

    name: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """The controller's own account of itself (`sdiag`)."""

    values: Mapping[str, float]
    """By our own short names; times in seconds."""
    since: int | None
    """When the controller's counters began."""
    by_type: tuple[RpcCount, ...] = ()
    by_user: tuple[RpcCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Controller:
    """One slurmctld as `scontrol ping` finds it."""

    host: str
    role: str
    """primary, backup, backup2, ..."""
    up: bool


@dataclass(frozen=True, slots=True)
class Reservation:
    """An advanced reservation."""

    name: str
    state: str
    start: int | None
    end: int | None
    nodes: int
    node_list: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class License:
    """A licence counted by the controller."""

    name: str
    total: int
    used: int
    free: int | None = None
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class EndedJob:
    """One run of a job that has ended; a requeued job has several."""

    job_id: int
    tasks: int
    state: str
    exit_code: int
    signal: int
    partition: str
    user: str
    account: str
    submit: int
    """When it was submitted or requeued: with the id, what tells one run from another."""
    eligible: int | None
    start: int | None
    """`None` if it never started."""
    end: int


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A period in which a node could not be used, from accounting; `end` is open while it lasts."""

    node: str
    state: str
    start: int
    end: int | None
    reason: str
    user: str
