"""Every rank's TCP connections by port: the one bad socket among many shows by comparison.

A port is that of the service: the peer's where the rank has called (side `client`), the rank's own
where it was called (side `server`).  A connection that begins and ends between two looks is not
seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Metric, Samples
from stagewatch.ranks.index import RANK_LABELS, RankKey
from stagewatch.ranks.network_namespaces import NamespaceSockets, namespace_of
from stagewatch.ranks.process_families import ProcessFamilies
from stagewatch.ranks.socket_owners import Members, SocketOwners
from stagewatch.ranks.tcp_diag import TcpSocket, dump, open_diag
from stagewatch.ranks.tcp_flows import MAX_PORTS, Flow, FlowTotals
from stagewatch.ranks.tcp_listen import listen_overflows

if TYPE_CHECKING:
    from stagewatch.node_context import NodeContext

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


class NetCollector(Collector):
    """Dumps the sockets of every namespace with ranks, and adds them up by rank and port."""

    def __init__(self, families: ProcessFamilies, proc: Path) -> None:
        self._families = families
        self._proc = proc
        self._sockets = NamespaceSockets(open_diag, proc)
        self._owners = SocketOwners(proc)
        self._totals = FlowTotals()

    def collect(self) -> Samples:
        members = self._families.look().members
        out = Samples()
        namespaces = self._namespaces(members)
        self._owners.begin(members)
        sockets = self._dump(out, namespaces)
        owners = self._owners.owners([found.inode for found in sockets])
        owned: dict[RankKey, list[TcpSocket]] = {key: [] for key in members}
        for found in sockets:
            if found.inode in owners:
                owned[owners[found.inode]].append(found)
        for key, mine in owned.items():
            for (side, port), flow in self._totals.update(key, mine).items():
                _flow(out, flow, *key, side, port)
            _listening(out, key, mine)
        self._totals.forget_unseen()
        return out

    def close(self) -> None:
        """Close the netlink sockets."""
        self._sockets.keep(())

    def _namespaces(self, members: Members) -> dict[int, int]:
        """A process in each network namespace that ranks live in."""
        found: dict[int, int] = {}
        for pids in members.values():
            namespace = namespace_of(self._proc, pids[0])
            if namespace is not None:
                found.setdefault(namespace, pids[0])
        return found

    def _dump(self, out: Samples, namespaces: Mapping[int, int]) -> list[TcpSocket]:
        out.add(OVERFLOWS, listen_overflows(self._proc, "self"), "host")
        own = namespace_of(self._proc, "self")
        found: list[TcpSocket] = []
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
                found += dump(diag, self._owners.is_wanted)
            except SourceError:
                self._sockets.drop(namespace)
                raise
        self._sockets.keep(namespaces)
        out.add(UNREADABLE, unreadable)
        return found


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
    listening = [found for found in sockets if found.state == "listen"]
    listening.sort(key=lambda found: found.receive_queue)
    for found in listening[-MAX_PORTS:]:
        out.add(LISTEN_QUEUE, found.receive_queue, *key, found.local_port)
        out.add(LISTEN_LIMIT, found.send_queue, *key, found.local_port)


def _build(options: NoOptions, node: NodeContext) -> NetCollector:
    return NetCollector(node.families, node.options.proc)


SPEC = CollectorSpec(
    name="net",
    help="TCP connections of every rank by port: bytes, repeats, round trips, queues, states",
    interval=2.0,
    options=NoOptions,
    build=_build,
)
