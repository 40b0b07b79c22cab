"""NFS client statistics from `/proc/<pid>/mountstats`.

The kernel makes the file from memory and asks no server, so it can be read while every mount hangs.
Format: fs/nfs/super.c (nfs_show_stats), net/sunrpc/stats.c (rpc_clnt_show_stats) and the
print_stats of each transport.

An operation is counted when it *completes*.  One that waits for a dead server shows only as a
request that was sent and never answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.errors import SourceError
from stagewatch.host.mounts import unescape
from stagewatch.host.procfs import number

MAX_BYTES = 64 << 20
"""Most that is read of the file; 1,000 mounts take about 8 MB."""

_DEVICE = re.compile(r"device (.+) mounted on (.+) with fstype nfs4?(?: statvers=\S+)?\s*$")
_MILLISECONDS = 1e-3
_UNUSED = " 0 0 0 0 0 0 0 0 0"
"""An operation that was never used, as nine in ten are."""


@dataclass(slots=True)
class Operation:
    """Counters of one kind of request (or of several, added up); times in seconds."""

    operations: int = 0
    transmissions: int = 0
    timeouts: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    rtt_seconds: float = 0.0
    execute_seconds: float = 0.0

    @property
    def retransmissions(self) -> int:
        """Requests sent again; a request dropped unsent counts as one but was not transmitted."""
        return max(0, self.transmissions - self.operations)

    def add(self, other: Operation) -> None:
        """Add another operation's counters to these."""
        self.operations += other.operations
        self.transmissions += other.transmissions
        self.timeouts += other.timeouts
        self.bytes_sent += other.bytes_sent
        self.bytes_received += other.bytes_received
        self.rtt_seconds += other.rtt_seconds
        self.execute_seconds += other.execute_seconds


@dataclass(slots=True)
class NfsMount:
    """One NFS mount point."""

    mount: str
    export: str
    version: str = ""
    protocol: str = ""
    address: str = ""
    operations: dict[str, Operation] | None = None
    sent: int | None = None
    """Requests sent on all connections (nconnect makes several), repeats included."""
    received: int | None = None
    """Replies that matched a request."""

    @property
    def server(self) -> str:
        """The host part of the export."""
        return self.export.partition(":/")[0].strip("[]")


def read_mountstats(source: Path | int) -> list[NfsMount]:
    """The NFS mounts in a mountstats file; raises `SourceError` where it cannot be read.

    A descriptor stays open and is read from its start: the kernel then writes the file anew.
    """
    try:
        with open(source, "rb", closefd=isinstance(source, Path)) as file:
            file.seek(0)
            return parse_mountstats(file.read(MAX_BYTES).decode("utf-8", "replace"))
    except OSError as error:
        name = source if isinstance(source, Path) else f"descriptor {source}"
        raise SourceError(f"{name}: {error.strerror}") from error


def parse_mountstats(text: str) -> list[NfsMount]:
    """Every NFS mount in the text, with all values that can be parsed.

    A mount point listed twice is mounted over: its users see the later one.
    """
    return list({mount.mount: mount for mount in _mounts(text)}.values())


def _mounts(text: str) -> Iterator[NfsMount]:
    mount: NfsMount | None = None
    in_operations = False
    for line in text.split("\n"):  # names may hold other line separators
        if line.startswith("device "):
            if mount is not None:
                yield mount
            found = _DEVICE.match(line)
            mount = NfsMount(unescape(found[2]), unescape(found[1])) if found else None
            in_operations = False
        elif mount is None:
            continue
        elif in_operations:
            _operation(mount, line)
        else:
            name, _, rest = line.strip().partition(":")
            if name == "per-op statistics":
                in_operations = True
            elif name == "opts":
                _options(mount, rest)
            elif name == "xprt":
                _transport(mount, rest.split())
    if mount is not None:
        yield mount


def _options(mount: NfsMount, text: str) -> None:
    options = dict(item.partition("=")[::2] for item in text.strip().split(","))
    version = options.get("vers", options.get("nfsvers", ""))
    minor = options.get("minorversion")  # kernels before 3.4 wrote vers=4,minorversion=1
    mount.version = f"{version}.{minor}" if minor and "." not in version else version
    mount.protocol = options.get("proto", "")
    mount.address = options.get("addr") or options.get("mountaddr", "")


def _transport(mount: NfsMount, fields: list[str]) -> None:
    """`<kind> <numbers>`: UDP lacks the three connection fields that TCP and RDMA have."""
    if not fields or fields[0] not in ("tcp", "rdma", "udp"):
        return
    skip = 2 if fields[0] == "udp" else 5
    try:
        sent, received = number(fields[1 + skip]), number(fields[2 + skip])
    except (ValueError, IndexError):
        return
    mount.sent = (mount.sent or 0) + sent
    mount.received = (mount.received or 0) + received


def _operation(mount: NfsMount, line: str) -> None:
    name, _, rest = line.partition(":")
    operation = Operation() if rest == _UNUSED else _counters(rest)
    if operation is None:
        return
    known = mount.operations = {} if mount.operations is None else mount.operations
    name = name.strip()
    if name in known:  # NFSv3's ACL program repeats names
        known[name].add(operation)
    else:
        known[name] = operation


def _counters(text: str) -> Operation | None:
    try:
        numbers = [number(field) for field in text.split()]
        count, sent_times, timeouts, sent, received, _, rtt, execute = numbers[:8]
    except ValueError:
        return None
    return Operation(
        count,
        sent_times,
        timeouts,
        sent,
        received,
        rtt * _MILLISECONDS,
        execute * _MILLISECONDS,
    )
