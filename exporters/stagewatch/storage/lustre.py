"""Client counters of mounted Lustre file systems: `llite/<name>-<address>/stats`.

In debugfs since 2.12 (root only), in /proc before.  A line is
`<name> <count> samples [<unit>] <min> <max> <sum> ...`; the last three are there for bytes and, in
newer versions, for microseconds.  The counters are of system calls: reads from the cache count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_LINE = re.compile(r"(\w+)\s+(\d{1,20}) samples \[(\w+)\](?:\s+\d{1,20}\s+\d{1,20}\s+(\d{1,20}))?")
_DIRECTIONS = {"read_bytes": "read", "write_bytes": "write"}
_INSTANCE = re.compile(r"-[0-9a-f]{8,16}$")


@dataclass(slots=True)
class LustreClient:
    """What this node did on one file system."""

    name: str
    operations: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    """By direction: read, write."""


def read_lustre(proc: Path, sys: Path) -> Iterator[LustreClient]:
    """Every mounted Lustre file system whose counters can be read."""
    for root in (sys / "kernel/debug/lustre/llite", proc / "fs/lustre/llite"):
        try:
            found = sorted(root.iterdir())
        except OSError:
            continue
        for directory in found:
            try:
                text = (directory / "stats").read_text("ascii", "replace")
            except OSError:
                continue
            yield parse_stats(_INSTANCE.sub("", directory.name), text)
        return


def parse_stats(name: str, text: str) -> LustreClient:
    """One stats file; lines of another form are passed over."""
    client = LustreClient(name)
    for line in text.splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        counter, count, unit, total = found.groups()
        direction = _DIRECTIONS.get(counter)
        if direction is not None:
            client.operations[direction] = int(count)
            client.bytes[direction] = int(total or 0)
            continue
        client.operations.setdefault(counter, int(count))  # "read" again, with its time
        if unit.startswith("usec") and total is not None:
            client.seconds[counter] = int(total) / 1e6
    return client
