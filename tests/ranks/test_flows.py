"""Flows of connections, as arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stagewatch.ranks.flows import MAX_EPHEMERAL_PORTS, MAX_PORTS, OTHER, FlowTotals
from stagewatch.ranks.socket_diag import TcpSocket, TcpStatistics

RANK = ("7", "train", "0")


def connection(cookie: int, peer: int, *, acked: int = 0, rtt: float = 0.001) -> TcpSocket:
    statistics = TcpStatistics(1.0, rtt, 0, acked, 0, 0)
    return TcpSocket("established", 40_000, peer, cookie, 0, 0, cookie, statistics)


def test_ports_of_one_rank_are_capped_and_service_ports_keep_room() -> None:
    totals = FlowTotals()
    dynamic = [connection(n, 40_000 + n, acked=1) for n in range(50)]
    flows = totals.update(RANK, dynamic)
    assert len(flows) == MAX_EPHEMERAL_PORTS + 1
    assert flows["client", OTHER].counts.sent == 50 - MAX_EPHEMERAL_PORTS
    service = [connection(100 + n, 8000 + n, acked=1) for n in range(50)]
    flows = totals.update(RANK, dynamic + service)
    assert ("client", "8000") in flows
    assert len(flows) == MAX_PORTS + 1
    assert sum(flow.counts.sent for flow in flows.values()) == 100


def test_the_slowest_connection_of_a_port_counts() -> None:
    flows = FlowTotals().update(RANK, [connection(1, 80, rtt=0.01), connection(2, 80, rtt=0.9)])
    assert flows["client", "80"].rtt == 0.9


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000)), max_size=6), max_size=20)
)
def test_totals_never_fall(looks: list[list[tuple[int, int]]]) -> None:
    totals = FlowTotals()
    last = 0
    for look in looks:
        flows = totals.update(
            RANK, [connection(n, 80, acked=acked) for n, acked in dict(look).items()]
        )
        totals.forget_unseen()
        now = flows["client", "80"].counts.sent if flows else 0
        assert now >= last
        last = now
