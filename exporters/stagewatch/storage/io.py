"""How much this node waits for storage, memory and cores: pressure stall information.

Disks, iowait and the like are node_exporter's, which the agents do not repeat.
"""

from __future__ import annotations

import re
from pathlib import Path

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Metric, Samples
from stagewatch.node_context import NodeContext

_PRESSURE = re.compile(r"(some|full) .*\btotal=(\d+)")

PRESSURE = Metric(
    "io_pressure_seconds_total",
    "counter",
    "Time in which tasks were stalled for want of a resource (cpu, memory, io): at least one "
    "(some), or all that could run (full); from /proc/pressure.",
    ("resource", "kind"),
)


class IoCollector(Collector):
    """The node as a whole; what single ranks read and write is `rank_io`'s."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc

    def collect(self) -> Samples:
        stalled = read_pressure(self._proc)
        if not stalled:
            raise NoData("this kernel has no pressure stall information, or was booted with psi=0")
        out = Samples()
        for (resource, kind), seconds in stalled.items():
            out.add(PRESSURE, seconds, resource, kind)
        return out


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


def _build(_: NoOptions, node: NodeContext) -> IoCollector:
    return IoCollector(node.options.proc)


SPEC = CollectorSpec(
    name="io",
    help="pressure stall information",
    interval=5.0,
    options=NoOptions,
    build=_build,
)
