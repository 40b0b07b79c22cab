"""Pressure stall information, `/proc/pressure/{cpu,memory,io}`.

See https://docs.kernel.org/accounting/psi.html.  Only the totals are read: they are exact over any
interval, unlike the kernel's own averages over 10 seconds and more.
"""

from __future__ import annotations

import re
from pathlib import Path

RESOURCES = ("cpu", "memory", "io")

_LINE = re.compile(r"(some|full) .*\btotal=(\d+)")


def read_pressure(proc: Path) -> dict[tuple[str, str], float]:
    """Stalled seconds since boot by resource and kind (some: a task waited; full: all did).

    Empty on a kernel without it or booted with psi=0.
    """
    found = {}
    for resource in RESOURCES:
        try:
            text = (proc / "pressure" / resource).read_text("ascii", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            if match := _LINE.match(line):
                found[resource, match[1]] = int(match[2]) / 1e6
    return found
