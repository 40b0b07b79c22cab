"""Every rank's TCP connections by port, so that one bad socket shows among many good ones.

The port is that of the service: the peer's port if the rank opened the connection (side `client`),
its own if the peer did (side `server`).  A connection that begins and ends between two looks is not
seen.
"""

from __future__ import annotations

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.ranks.flows import Flow, FlowTotals
from stagewatch.ranks.held_sockets import RankSockets
from stagewatch.ranks.model import RANK_LABELS

_FLOW = (*RANK_LABELS, "side", "port")

BYTES = counter(
    "rl_rank_tcp_bytes_total",
    "Bytes received, and bytes sent that the peer has acknowledged.",
    (*_FLOW, "direction"),
)
SEGMENTS = counter(
    "rl_rank_tcp_data_segments_total",
    "Segments with data sent, repeats included.",
    _FLOW,
)
RETRANSMISSIONS = counter(
    "rl_rank_tcp_retransmissions_total", "Segments that were sent again.", _FLOW
)
RTT = gauge(
    "rl_rank_tcp_rtt_seconds",
    "Smoothed round trip time, of the slowest connection.",
    _FLOW,
)
SEND_QUEUE = gauge(
    "rl_rank_tcp_send_queue_bytes",
    "Bytes the rank has written that the peer has not acknowledged.",
    _FLOW,
)
LAST_RECEIVED = gauge(
    "rl_rank_tcp_last_receive_age_seconds",
    "Time since data came in on any of the established connections.",
    _FLOW,
)
CONNECTIONS = gauge(
    "rl_rank_tcp_connections",
    "Connections by state (established, syn_sent, close_wait ...).",
    (*_FLOW, "state"),
)
UNREADABLE = gauge(
    "net_rank_namespaces_unreadable",
    "Network namespaces of ranks that the agent may not enter (it takes CAP_SYS_ADMIN): their "
    "sockets are not shown.",
)


class NetCollector(Collector):
    """Adds up the sockets of every rank by port."""

    def __init__(self, sockets: RankSockets) -> None:
        self._sockets = sockets
        self._totals = FlowTotals()

    def collect(self) -> Samples:
        look = self._sockets.look()
        out = Samples(denied=look.denied)
        out.add(UNREADABLE, look.unreadable)
        for key, mine in look.owned.items():
            for (side, port), flow in self._totals.update(key, mine).items():
                _flow(out, flow, *key, side, port)
        self._totals.forget_unseen()
        return out


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
        out.add(SEND_QUEUE, flow.send_queue, *labels)


SPEC = Declaration(
    name="net",
    help="TCP of every rank by port: bytes, retransmissions, round trips, queues, states",
    interval=2.5,
    options=NoOptions,
)
