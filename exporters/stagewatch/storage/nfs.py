"""NFS mounts and the cost of their requests, from the kernel's own counters.

Nothing here touches a mount: the counters can be read while a server is dead and every `stat`
hangs. Its unanswered requests are then `sent - received`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration
from stagewatch.core.config import option
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.storage.mountstats import NfsMount, Operation, read_mountstats

OPERATIONS = ("READ", "WRITE", "COMMIT", "OPEN", "GETATTR", "LOOKUP")
"""The operations with series of their own; all others are summed up."""
OTHER = "other"

_OP = ("mount", "op")
_SOURCE = "from /proc/self/mountstats; counted when the operation completes."

INFO = gauge(
    "nfs_info",
    "1 for every NFS mount point, with its server, export, version, transport and address.",
    ("mount", "server", "export", "version", "protocol", "address"),
)
OPERATIONS_TOTAL = counter("nfs_operations_total", f"Operations, {_SOURCE}", _OP)
BYTES = counter(
    "nfs_bytes_total",
    "Bytes sent and received for operations, RPC headers included.",
    _OP,
)
RTT = counter(
    "nfs_operation_rtt_seconds_total",
    "Time between sending an operation and the server's reply.",
    _OP,
)
EXECUTE = counter(
    "nfs_operation_execute_seconds_total",
    "Whole time of operations: queue, round trip and everything between.",
    _OP,
)
REQUESTS = counter("nfs_requests_total", "Operations of all kinds together.", ("mount",))
RETRANSMISSIONS = counter(
    "nfs_retransmissions_total", "Requests that were retransmitted.", ("mount",)
)
TIMEOUTS = counter("nfs_timeouts_total", "Major timeouts: all retries of a request failed.", _OP)
SENDS = counter(
    "nfs_transport_requests_sent_total", "Requests sent, retransmissions included.", ("mount",)
)
RECEIVES = counter(
    "nfs_transport_replies_received_total", "Replies that matched a request.", ("mount",)
)


@dataclass(frozen=True, slots=True)
class NfsOptions:
    """Options of the `nfs` collector."""

    process: str = option(
        "self",
        "process whose mounts are shown; for another user's process, such as 1, the agent needs "
        "that user's rights",
    )
    descriptor: int = option(
        0,
        "open descriptor of a mountstats file, read instead of the one of `process`; the image's "
        "entry point opens /proc/1/mountstats while it is root; 0 for none",
    )


class NfsCollector(Collector):
    """Every NFS mount in one mountstats file, given by its path or an open descriptor."""

    def __init__(self, mountstats: Path | int) -> None:
        self._mountstats = mountstats

    def collect(self) -> Samples:
        mounts = read_mountstats(self._mountstats)
        if not mounts:
            raise NoData("no NFS mount")
        out = Samples()
        for mount in mounts:
            self._mount(out, mount)
        return out

    def _mount(self, out: Samples, mount: NfsMount) -> None:
        name = mount.mount
        out.add(
            INFO, 1, name, mount.server, mount.export, mount.version, mount.protocol, mount.address
        )
        out.add(SENDS, mount.sent, name)
        out.add(RECEIVES, mount.received, name)
        if mount.operations is not None:
            other = Operation()
            for op, counters in mount.operations.items():
                if op in OPERATIONS:
                    _operation(out, counters, name, op)
                else:
                    other.add(counters)
            _operation(out, other, name, OTHER)
            every = mount.operations.values()
            out.add(REQUESTS, sum(one.operations for one in every), name)
            out.add(RETRANSMISSIONS, sum(one.retransmissions for one in every), name)


def _operation(out: Samples, operation: Operation, mount: str, op: str) -> None:
    out.add(OPERATIONS_TOTAL, operation.operations, mount, op)
    out.add(BYTES, operation.bytes_sent + operation.bytes_received, mount, op)
    out.add(RTT, operation.rtt_seconds, mount, op)
    out.add(EXECUTE, operation.execute_seconds, mount, op)
    out.add(TIMEOUTS, operation.timeouts, mount, op)


SPEC = Declaration(
    name="nfs",
    help="operations, bytes, latency and retransmissions of every NFS mount",
    interval=5.0,
    options=NfsOptions,
)
