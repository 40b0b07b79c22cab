"""PyTorch's flight recorder: asked for a dump by its pipe, and which ranks are behind in it.

Pipe and dump: `HeartbeatMonitor::runLoop` and `DumpPipe` of PyTorch's ProcessGroupNCCL; its keys:
FlightRecorder.hpp, version 2.x.  A dump is a pickle by PyTorch, or JSON by other writers.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pickle
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from stagewatch.core.descriptors import closing
from stagewatch.ranks.nccl.layout import BEGUN, FLIGHT_RECORDER, IDLE, LAUNCHED, Communicator

MAX_BYTES = 32 << 20
"""The largest dump in bytes."""
MAX_GROUPS = 64
MAX_NUMBER = 1 << 53
MAX_REPORTED = 8
"""The most groups of a rank that are reported."""


@dataclass(slots=True)
class Position:
    """How far a rank has come in a process group, by sequence numbers of collectives."""

    name: str
    ranks: list[int] = field(default_factory=list)
    """Its members."""
    enqueued: int = 0
    completed: int = 0
    operations: dict[int, str] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    """PyTorch's words: scheduled, started, completed."""
    elements: dict[int, int] = field(default_factory=dict)
    """Elements of the tensors, if all members must have equally many."""
    described: str = ""
    """The group's name in the client."""


def trigger(pipe: str, uid: int) -> None:
    """Ask for a dump. Raises `OSError` if that is not a pipe of this user, or nobody listens."""
    with (
        _pinned(pipe, uid, stat.S_ISFIFO) as path,
        closing(os.open(path, os.O_WRONLY | os.O_NONBLOCK)) as descriptor,
    ):
        os.write(descriptor, b"1\n")


def version(dump: str) -> list[int] | None:
    """A value that changes once the dump is written again."""
    try:
        status = os.lstat(dump)
    except OSError:
        return None
    return [status.st_ino, status.st_mtime_ns, status.st_size]


def load(dump: str, uid: int) -> Any:
    """The content of a dump, of builtin types alone."""
    with _pinned(dump, uid, stat.S_ISREG) as path, Path(path).open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(0, f"its dump has more than {MAX_BYTES >> 20} MiB")
    if content.startswith(b"{"):
        return json.loads(content)
    return _Plain(io.BytesIO(content)).load()


def positions(dump: Any) -> dict[str, Position]:
    """How far the rank has come, by process group.  Raises anything where the dump is no dump."""
    groups: dict[str, Position] = {}
    by_id: dict[str, str] = {}
    for entry in dump.get("entries", ()):
        name, description = map(str, entry["process_group"])
        by_id[str(entry["pg_id"])] = name
        if entry["is_p2p"] or (name not in groups and len(groups) >= MAX_GROUPS):
            continue
        group = groups.setdefault(name, Position(description or name))
        group.described = _described(name, description)
        sequence = _number(entry["collective_seq_id"])
        group.operations[sequence] = str(entry["profiling_name"])[:100].rpartition(":")[2]
        group.states[sequence] = str(entry["state"])
        if group.operations[sequence].startswith("all_reduce"):
            sizes = map(math.prod, entry.get("input_sizes", ()))
            group.elements[sequence] = _number(sum(sizes))
        group.enqueued = max(group.enqueued, sequence)
        if entry["state"] == "completed":
            group.completed = max(group.completed, sequence)
    # Entries that have left the ring, or are left out (TORCH_INCLUDE_ONLY_ACTIVE), count here.
    for identity, status in dump.get("pg_status", {}).items():
        if group_named := groups.get(by_id.get(str(identity), "")):
            group_named.enqueued = max(
                group_named.enqueued, _number(status["last_enqueued_collective"])
            )
            group_named.completed = max(
                group_named.completed, _number(status["last_completed_collective"])
            )
    for config in dump.get("pg_config", {}).values():
        if member_of := groups.get(str(config["name"])):
            ranks = config["ranks"]
            member_of.ranks = list(json.loads(ranks) if isinstance(ranks, str) else ranks)
    return groups


def calls(groups: Mapping[str, Position], rank: int, world: int = 0) -> list[Communicator]:
    """The open or last operation of a rank in some of its groups, open ones first.

    Whether a kernel has begun is known only if PyTorch measures the time of collectives.
    `world`: the number of ranks, since gloo does not record the members of groups.
    """
    told = []
    for one in sorted(groups.values(), key=lambda one: (one.completed >= one.enqueued, one.name)):
        number = min((each for each in one.states if each > one.completed), default=one.enqueued)
        begun = BEGUN if one.states.get(number) == "started" else LAUNCHED
        state = IDLE if number <= one.completed else begun
        member = one.ranks.index(rank) if rank in one.ranks else rank
        op, size = one.operations.get(number, "unknown"), one.elements.get(number, 0)
        members = len(one.ranks) or (world if one.described == "world" else 0)
        what = members, op, number, size, state, (), FLIGHT_RECORDER
        told.append(Communicator(one.described, one.described, member, *what))
    return told[:MAX_REPORTED]


def _number(value: Any) -> int:
    return max(0, min(int(value), MAX_NUMBER))


def _described(name: str, description: str) -> str:
    """The name that the client gives a group, unless it is too long for a record."""
    if description == "default_pg":
        return "world"
    return f"{description}:{name}" if description not in ("", "undefined") else name


def facts(by_rank: Mapping[int, Mapping[str, Position]]) -> list[str]:
    """A line for each process group with an unfinished operation, the ranks behind first."""
    lines = []
    for group in sorted({name for groups in by_rank.values() for name in groups}):
        here = {rank: groups[group] for rank, groups in by_rank.items() if group in groups}
        top = max(here.values(), key=lambda one: one.enqueued)
        what = f"{top.operations.get(top.enqueued, 'collective')} {top.enqueued}"
        behind = [rank for rank, one in here.items() if one.enqueued < top.enqueued]
        inside = [rank for rank, one in here.items() if one.completed < top.enqueued]
        where = f"PyTorch flight recorder: process group {top.name}"
        if len(top.ranks) > len(here):
            where += f" ({len(here)} of {len(top.ranks)} members here)"
        if behind:
            there = [rank for rank in here if rank not in behind]
            lines.append(f"{where}: {have(behind)} not enqueued {what}, {have(there)}")
        elif inside:
            lines.append(f"{where}: {have(inside)} enqueued {what} and not completed it")
    return lines


def have(ranks: Iterable[int]) -> str:
    """`rank 3 has`, `ranks 0, 1 have`."""
    numbers = sorted(ranks)
    shown = ", ".join(map(str, numbers[:8]))
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"ranks {shown}{more} have" if len(numbers) > 1 else f"rank {shown} has"


@contextlib.contextmanager
def _pinned(path: str, uid: int, kind: Callable[[int], bool]) -> Iterator[str]:
    """A path to open that leads to something of this kind and user, by a descriptor that stays.

    Nothing has been opened until then: O_PATH wakes no device.
    """
    with closing(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)) as descriptor:
        status = os.fstat(descriptor)
        if not kind(status.st_mode) or status.st_uid != uid:
            raise OSError(0, f"{Path(path).name} is not what PyTorch makes, or not of its user")
        yield f"/proc/self/fd/{descriptor}"


class _Plain(pickle.Unpickler):
    """Refuses all classes and functions, so that a dump cannot call anything."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a dump")

    def persistent_load(self, _: Any) -> NoReturn:
        raise pickle.UnpicklingError("a dump refers to nothing else")
