"""Block devices, `/proc/diskstats`; see https://docs.kernel.org/admin-guide/iostats.html."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.errors import SourceError
from stagewatch.host.procfs import number

SECTOR = 512
"""Bytes of a sector here, whatever the device's own are."""

_OPERATIONS = (("read", 0), ("write", 4), ("discard", 11))
_FLUSHES = 15


@dataclass(frozen=True, slots=True)
class Requests:
    """Completed requests of one kind."""

    completed: int
    bytes: int | None
    """Flushes have none."""
    seconds: float
    """Sum over the requests, so it may grow faster than the clock."""


@dataclass(frozen=True, slots=True)
class Disk:
    """One block device."""

    name: str
    requests: dict[str, Requests]
    """By kind: read, write, and discard and flush where the kernel counts them."""
    busy_seconds: float
    """Time with at least one request in flight."""


def read_disks(proc: Path) -> list[Disk]:
    """Every block device, partitions included.  Raises `SourceError` if there is no such file."""
    try:
        text = (proc / "diskstats").read_text("ascii", "replace")
    except OSError as error:
        raise SourceError(f"{proc / 'diskstats'}: {error.strerror}") from error
    return list(parse_diskstats(text))


def parse_diskstats(text: str) -> Iterator[Disk]:
    """The devices of all lines that can be parsed."""
    for line in text.split("\n"):
        fields = line.split()
        try:
            numbers = [number(field) for field in fields[3:]]
            yield Disk(fields[2], _requests(numbers), numbers[9] / 1e3)
        except (ValueError, IndexError):
            continue


def _requests(numbers: list[int]) -> dict[str, Requests]:
    found = {}
    for kind, at in _OPERATIONS:
        if len(numbers) >= at + 4:
            completed, _, sectors, milliseconds = numbers[at : at + 4]
            found[kind] = Requests(completed, sectors * SECTOR, milliseconds / 1e3)
    if len(numbers) >= _FLUSHES + 2:
        completed, milliseconds = numbers[_FLUSHES : _FLUSHES + 2]
        found["flush"] = Requests(completed, None, milliseconds / 1e3)
    return found
