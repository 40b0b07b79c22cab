"""Every rank's TCP connections by port, so that the one bad socket shows beside many good ones.

The port is the service's: the peer's where the rank has called (side `client`), the rank's own
where it was called (side `server`).  A connection that begins and ends between two looks does not
show.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Metric, Samples
from stagewatch.node_context import NodeContext
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.flows import MAX_PORTS, Flow, FlowTotals
from stagewatch.ranks.model import RANK_LABELS, RankKey
from stagewatch.ranks.socket_diag import NamespaceSockets, TcpSocket, dump, namespace_of

MAX_DESCRIPTORS = 65_536
"""Descriptors looked at of one process."""

Members = Mapping[RankKey, tuple[int, ...]]

_SOCKET = "socket:["
_FLOW = (*RANK_LABELS, "side", "port")

BYTES = Metric(
    "rl_rank_tcp_bytes_total",
    "counter",
    "Bytes received, and bytes sent that the peer has acknowledged.",
    (*_FLOW, "direction"),
)
SEGMENTS = Metric(
    "rl_rank_tcp_data_segments_total",
    "counter",
    "Segments with data sent, repeats included.",
    _FLOW,
)
RETRANSMISSIONS = Metric(
    "rl_rank_tcp_retransmissions_total", "counter", "Segments that were sent again.", _FLOW
)
RTT = Metric(
    "rl_rank_tcp_rtt_seconds",
    "gauge",
    "Smoothed round trip time, of the slowest connection.",
    _FLOW,
)
UNACKNOWLEDGED = Metric(
    "rl_rank_tcp_unacknowledged_segments", "gauge", "Segments sent and not yet acknowledged.", _FLOW
)
SEND_QUEUE = Metric(
    "rl_rank_tcp_send_queue_bytes",
    "gauge",
    "Bytes the rank has written that the peer has not acknowledged.",
    _FLOW,
)
RECEIVE_QUEUE = Metric(
    "rl_rank_tcp_receive_queue_bytes", "gauge", "Bytes that came in and were not read.", _FLOW
)
LAST_RECEIVED = Metric(
    "rl_rank_tcp_last_receive_age_seconds",
    "gauge",
    "Time since data came in on any of the established connections.",
    _FLOW,
)
CONNECTIONS = Metric(
    "rl_rank_tcp_connections",
    "gauge",
    "Connections by state (established, syn_sent, close_wait ...).",
    (*_FLOW, "state"),
)
LISTEN_QUEUE = Metric(
    "rl_rank_tcp_listen_queue",
    "gauge",
    "Connections that wait to be accepted by the rank.",
    (*RANK_LABELS, "port"),
)
LISTEN_LIMIT = Metric(
    "rl_rank_tcp_listen_queue_limit",
    "gauge",
    "Connections that may wait, before further ones are dropped.",
    (*RANK_LABELS, "port"),
)
OVERFLOWS = Metric(
    "net_listen_overflows_total",
    "counter",
    "Connections dropped since a listening queue was full, by network namespace (host, or the one "
    "of a rank).",
    ("namespace",),
)
UNREADABLE = Metric(
    "net_rank_namespaces_unreadable",
    "gauge",
    "Network namespaces of ranks that the agent may not enter (it takes CAP_SYS_ADMIN): their "
    "sockets are not shown.",
)


class SocketOwners:
    """Remembers which rank holds a socket; searches descriptors only for sockets not seen before.

    One round: `begin`, `is_wanted` for every socket there is, `owners` of those that were wanted.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._members: Members = {}
        self._owners: dict[int, RankKey] = {}
        self._foreign: set[int] = set()
        self._seen: set[int] = set()

    def begin(self, members: Members) -> None:
        """Take the ranks' processes as they are now; a new one may hold sockets seen before."""
        if dict(members) != self._members:
            self._members = dict(members)
            self._owners = {}
            self._foreign = set()
        self._seen = set()

    def is_wanted(self, inode: int) -> bool:
        """Whether a socket may belong to a rank."""
        self._seen.add(inode)
        return inode not in self._foreign

    def owners(self, inodes: Collection[int]) -> dict[int, RankKey]:
        """The owner of each of these sockets that a rank holds."""
        unknown = set(inodes) - self._owners.keys()
        if unknown:
            self._owners = {
                inode: key
                for key, pids in self._members.items()
                for pid in pids
                for inode in _socket_inodes(self._proc, pid)
            }
        # Numbers are used again, so neither set remembers sockets that are closed.
        self._foreign = (self._foreign | (unknown - self._owners.keys())) & self._seen
        self._owners = {inode: key for inode, key in self._owners.items() if inode in self._seen}
        return {inode: self._owners[inode] for inode in inodes if inode in self._owners}


class NetCollector(Collector):
    """Dumps the sockets of every network namespace with ranks and adds them up by rank and port."""

    def __init__(self, families: ProcessFamilies, proc: Path) -> None:
        self._families = families
        self._proc = proc
        self._sockets = NamespaceSockets(proc)
        self._owners = SocketOwners(proc)
        self._totals = FlowTotals()

    def collect(self) -> Samples:
        members = self._families.look().members
        out = Samples()
        self._owners.begin(members)
        sockets = self._dump(out, [pids[0] for pids in members.values()])
        owners = self._owners.owners([socket.inode for socket in sockets])
        owned: dict[RankKey, list[TcpSocket]] = {key: [] for key in members}
        for socket in sockets:
            if socket.inode in owners:
                owned[owners[socket.inode]].append(socket)
        for key, mine in owned.items():
            for (side, port), flow in self._totals.update(key, mine).items():
                _flow(out, flow, *key, side, port)
            _listening(out, key, mine)
        self._totals.forget_unseen()
        return out

    def close(self) -> None:
        """Close the netlink sockets."""
        self._sockets.keep(())

    def _dump(self, out: Samples, ranks: list[int]) -> list[TcpSocket]:
        """The sockets of every network namespace that these processes live in."""
        places = ((namespace_of(self._proc, pid), pid) for pid in ranks)
        namespaces = {namespace: pid for namespace, pid in places if namespace is not None}
        out.add(OVERFLOWS, listen_overflows(self._proc, "self"), "host")
        own = namespace_of(self._proc, "self")
        sockets: list[TcpSocket] = []
        unreadable = 0
        for namespace, pid in namespaces.items():
            if namespace != own:
                out.add(OVERFLOWS, listen_overflows(self._proc, pid), str(namespace))
            try:
                diag = self._sockets.get(namespace, pid)
            except SourceError:
                unreadable += 1
                continue
            try:
                sockets += dump(diag, self._owners.is_wanted)
            except SourceError:
                self._sockets.drop(namespace)
                raise
        self._sockets.keep(namespaces)
        out.add(UNREADABLE, unreadable)
        return sockets


def _flow(out: Samples, flow: Flow, *labels: str) -> None:
    out.add(BYTES, flow.counts.sent, *labels, "sent")
    out.add(BYTES, flow.counts.received, *labels, "received")
    out.add(SEGMENTS, flow.counts.segments, *labels)
    out.add(RETRANSMISSIONS, flow.counts.retransmissions, *labels)
    for state, count in flow.states.items():
        out.add(CONNECTIONS, count, *labels, state)
    out.add(RTT, flow.rtt, *labels)
    out.add(LAST_RECEIVED, flow.last_received, *labels)
    if flow.states:
        out.add(UNACKNOWLEDGED, flow.unacknowledged, *labels)
        out.add(SEND_QUEUE, flow.send_queue, *labels)
        out.add(RECEIVE_QUEUE, flow.receive_queue, *labels)


def _listening(out: Samples, key: RankKey, sockets: list[TcpSocket]) -> None:
    """The fullest queue of each port: several sockets may share one (SO_REUSEPORT)."""
    listening = [socket for socket in sockets if socket.state == "listen"]
    listening.sort(key=lambda socket: socket.receive_queue)
    for socket in listening[-MAX_PORTS:]:
        out.add(LISTEN_QUEUE, socket.receive_queue, *key, socket.local_port)
        out.add(LISTEN_LIMIT, socket.send_queue, *key, socket.local_port)


def listen_overflows(proc: Path, pid: int | str) -> int | None:
    """Connections dropped because nobody accepted them in time; `None` where it cannot be read.

    ListenOverflows of a process's network namespace, in `/proc/<pid>/net/netstat`: pairs of lines,
    names above numbers.
    """
    try:
        lines = (proc / str(pid) / "net" / "netstat").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    for names, numbers in zip(lines[::2], lines[1::2], strict=False):
        counters = dict(zip(names.split(), numbers.split(), strict=False))
        value = counters.get("ListenOverflows", "")
        if value.isdecimal():
            return int(value)
    return None


def _socket_inodes(proc: Path, pid: int) -> list[int]:
    """The sockets a process holds open; empty if it is gone or hidden."""
    directory = f"{proc}/{pid}/fd"
    inodes = []
    try:
        names = os.listdir(directory)  # noqa: PTH208 - thousands of names
    except OSError:
        return []
    for name in names[:MAX_DESCRIPTORS]:
        try:
            target = os.readlink(f"{directory}/{name}")  # noqa: PTH115
        except OSError:
            continue
        if target.startswith(_SOCKET):
            inodes.append(int(target[len(_SOCKET) : -1]))
    return inodes


def _build(options: NoOptions, node: NodeContext) -> NetCollector:
    return NetCollector(node.families, node.options.proc)


SPEC = CollectorSpec(
    name="net",
    help="TCP connections of every rank by port: bytes, repeats, round trips, queues, states",
    interval=2.0,
    options=NoOptions,
    build=_build,
)
