"""Adds up a rank's TCP connections by side and port, over sockets that come and go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stagewatch.ranks.model import RankKey
from stagewatch.ranks.socket_diag import TcpSocket, TcpStatistics

MAX_PORTS = 16
"""The most ports that are shown for one rank and side; connections of other ports are added up."""
MAX_EPHEMERAL_PORTS = 8
"""The most of these ports from the kernel's ephemeral range: NCCL alone opens dozens."""
EPHEMERAL_FROM = 32_768
OTHER = "other"

FlowKey = tuple[str, str]
"""Side and port, as labels."""

_NOTHING = TcpStatistics(0.0, 0.0, 0, 0, 0, 0)


@dataclass(slots=True)
class Counts:
    """Bytes and segments of connections so far."""

    sent: int = 0
    received: int = 0
    segments: int = 0
    retransmissions: int = 0

    def add(self, new: TcpStatistics, old: TcpStatistics) -> None:
        """Add the growth between two looks at one connection."""
        self.sent += max(0, new.bytes_acknowledged - old.bytes_acknowledged)
        self.received += max(0, new.bytes_received - old.bytes_received)
        self.segments += max(0, new.data_segments_sent - old.data_segments_sent)
        self.retransmissions += max(0, new.retransmissions - old.retransmissions)


@dataclass(slots=True)
class Flow:
    """All connections of a rank with one side and port."""

    counts: Counts
    states: Counter[str] = field(default_factory=Counter)
    rtt: float | None = None
    last_received: float | None = None
    send_queue: int = 0

    def add(self, connection: TcpSocket) -> None:
        """Add the present state of one connection."""
        self.states[connection.state] += 1
        self.send_queue += connection.send_queue
        statistics = connection.statistics
        if statistics is None:
            return
        if connection.state == "established":
            self.rtt = max(self.rtt or 0.0, statistics.rtt)
            age = statistics.last_received
            self.last_received = age if self.last_received is None else min(self.last_received, age)


_Rank = dict[FlowKey, Counts]


class FlowTotals:
    """Counts of all ranks that do not fall when a connection closes."""

    def __init__(self) -> None:
        self._ranks: dict[RankKey, _Rank] = defaultdict(dict)
        self._connections: dict[int, tuple[FlowKey, TcpStatistics]] = {}
        self._seen_ranks: set[RankKey] = set()
        self._seen_connections: set[int] = set()

    def update(self, key: RankKey, sockets: Sequence[TcpSocket]) -> Mapping[FlowKey, Flow]:
        """The flows of a rank from its sockets, also flows without an open connection."""
        self._seen_ranks.add(key)
        listening = {item.local_port for item in sockets if item.state == "listen"}
        rank = self._ranks[key]
        flows: dict[FlowKey, Flow] = {name: Flow(counts) for name, counts in rank.items()}
        for connection in sockets:
            if connection.state != "listen":
                name = self._count(rank, connection, listening)
                flows.setdefault(name, Flow(rank[name])).add(connection)
        return flows

    def forget_unseen(self) -> None:
        """Drop connections that are closed and ranks that are gone."""
        self._ranks = defaultdict(dict, {key: self._ranks[key] for key in self._seen_ranks})
        self._connections = {cookie: self._connections[cookie] for cookie in self._seen_connections}
        self._seen_ranks = set()
        self._seen_connections = set()

    def _count(self, rank: _Rank, connection: TcpSocket, listening: set[int]) -> FlowKey:
        """Add a connection's counts to its flow, which stays the same for its life."""
        name, before = self._connections.get(connection.cookie) or (
            _flow_key(rank, connection, listening),
            _NOTHING,
        )
        now = connection.statistics or before
        rank.setdefault(name, Counts()).add(now, before)
        self._connections[connection.cookie] = (name, now)
        self._seen_connections.add(connection.cookie)
        return name


def _flow_key(rank: _Rank, connection: TcpSocket, listening: set[int]) -> FlowKey:
    """The flow of a new connection; only the first ports that a rank uses have flows of their
    own."""
    called = connection.local_port in listening
    side, port = ("server", connection.local_port) if called else ("client", connection.peer_port)
    name = (side, str(port))
    ports = [int(other) for at, other in rank if at == side and other != OTHER]
    ephemeral = sum(other >= EPHEMERAL_FROM for other in ports)
    full = len(ports) >= MAX_PORTS
    if port >= EPHEMERAL_FROM and not called:
        full = full or ephemeral >= MAX_EPHEMERAL_PORTS
    return name if name in rank or not full else (side, OTHER)
