"""How much this node waits for storage: pressure stall information and disks.

Parallel file systems have no counters that an unprivileged agent can read; the canary measures
those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Samples, counter
from stagewatch.host.procfs import number

EXCLUDED_DISKS = re.compile(r"(loop|ram|zram|fd|sr)\d+")
SECTOR = 512
"""Bytes of a sector in /proc/diskstats, whatever the device's own are."""

_OPERATIONS = (("read", 0), ("write", 4), ("discard", 11))
_BUSY, _FLUSHES = 9, 15
_PRESSURE = re.compile(r"(some|full) .*\btotal=(\d+)")

_DISK = ("device", "operation")

PRESSURE = counter(
    "io_pressure_seconds_total",
    "Time in which tasks were stalled for lack of a resource (cpu, memory, io): at least one task "
    "(some), or all that could run (full); from /proc/pressure.",
    ("resource", "kind"),
)
DISK_BUSY = counter(
    "io_disk_busy_seconds_total",
    "Time the device had a request in flight; a device that serves many requests at once is not "
    "saturated at 1.",
    ("device",),
)
DISK_OPERATIONS = counter(
    "io_disk_operations_total",
    "Completed requests by kind: read, write, discard, flush.",
    _DISK,
)
DISK_SECONDS = counter(
    "io_disk_operation_seconds_total",
    "Time requests took, added up; divided by their number, the latency.",
    _DISK,
)
DISK_BYTES = counter("io_disk_bytes_total", "Bytes of completed requests.", _DISK)


class IoCollector(Collector):
    """The whole node; `rank_io` has the reads and writes of single ranks."""

    def __init__(self, proc: Path, sys: Path) -> None:
        self._proc = proc
        self._sys = sys

    def collect(self) -> Samples:
        out = Samples()
        out.add_all(PRESSURE, read_pressure(self._proc))
        try:
            text = (self._proc / "diskstats").read_text("ascii", "replace")
        except OSError as error:
            raise SourceError(f"{self._proc / 'diskstats'}: {error.strerror}") from error
        for name, numbers in parse_diskstats(text):
            if self._is_shown(name):
                _disk(out, name, numbers)
        return out

    def _is_shown(self, name: str) -> bool:
        """Whole devices, not partitions: those are not in /sys/block.  It writes `!` for `/` in a
        name."""
        if EXCLUDED_DISKS.fullmatch(name):
            return False
        return (self._sys / "block" / name.replace("/", "!")).exists()


def read_pressure(proc: Path) -> dict[tuple[str, str], float]:
    """Stalled seconds since boot by resource and kind (some: a task waited; full: all did).

    Only the totals of /proc/pressure/{cpu,memory,io} are read: they are exact over any interval,
    unlike the kernel's own averages.  Empty on a kernel without them, or booted with psi=0.  See
    https://docs.kernel.org/accounting/psi.html.
    """
    stalled = {}
    for resource in ("cpu", "memory", "io"):
        try:
            text = (proc / "pressure" / resource).read_text("ascii", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            if match := _PRESSURE.match(line):
                stalled[resource, match[1]] = int(match[2]) / 1e6
    return stalled


def parse_diskstats(text: str) -> Iterator[tuple[str, list[int]]]:
    """Name and numbers of every block device, partitions included, of all lines that can be parsed.

    See https://docs.kernel.org/admin-guide/iostats.html.
    """
    for line in text.split("\n"):
        fields = line.split()
        try:
            numbers = [number(field) for field in fields[3:]]
        except ValueError:
            continue
        if len(numbers) > _BUSY:
            yield fields[2], numbers


def _disk(out: Samples, name: str, numbers: list[int]) -> None:
    out.add(DISK_BUSY, numbers[_BUSY] / 1e3, name)
    for kind, at in _OPERATIONS:
        if len(numbers) >= at + 4:
            completed, _, sectors, milliseconds = numbers[at : at + 4]
            out.add(DISK_OPERATIONS, completed, name, kind)
            out.add(DISK_SECONDS, milliseconds / 1e3, name, kind)
            out.add(DISK_BYTES, sectors * SECTOR, name, kind)
    if len(numbers) >= _FLUSHES + 2:
        completed, milliseconds = numbers[_FLUSHES : _FLUSHES + 2]
        out.add(DISK_OPERATIONS, completed, name, "flush")
        out.add(DISK_SECONDS, milliseconds / 1e3, name, "flush")


SPEC = Declaration(
    name="io",
    help="pressure stall information and disks",
    interval=5.0,
    options=NoOptions,
)
