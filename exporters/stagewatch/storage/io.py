"""How much this node waits for storage, and for what: pressure and disks.

Parallel file systems have no counters that an unprivileged agent can read; the canary measures
those.
"""

from __future__ import annotations

import re
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.exposition import Samples, counter
from stagewatch.storage.diskstats import Disk, read_disks

EXCLUDED_DISKS = r"(loop|ram|zram|fd|sr)\d+"

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

    def __init__(self, proc: Path, sys: Path, *, exclude_disks: str = EXCLUDED_DISKS) -> None:
        self._proc = proc
        self._sys = sys
        self._excluded = re.compile(exclude_disks)

    def collect(self) -> Samples:
        out = Samples()
        for (resource, kind), seconds in read_pressure(self._proc).items():
            out.add(PRESSURE, seconds, resource, kind)
        for disk in read_disks(self._proc):
            if self._is_shown(disk.name):
                _disk(out, disk)
        return out

    def _is_shown(self, name: str) -> bool:
        """Whole devices, not partitions: those are not in /sys/block.  It writes `!` for `/` in a
        name."""
        whole = (self._sys / "block" / name.replace("/", "!")).exists()
        return whole and not self._excluded.fullmatch(name)


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


def _disk(out: Samples, disk: Disk) -> None:
    out.add(DISK_BUSY, disk.busy_seconds, disk.name)
    for kind, requests in disk.requests.items():
        out.add(DISK_OPERATIONS, requests.completed, disk.name, kind)
        out.add(DISK_SECONDS, requests.seconds, disk.name, kind)
        out.add(DISK_BYTES, requests.bytes, disk.name, kind)


SPEC = Declaration(
    name="io",
    help="pressure stall information and disks",
    interval=5.0,
    options=NoOptions,
)
