"""A node that leaves service is counted when it does, and once."""

from __future__ import annotations

from stagewatch.slurm.events.nodes import NodeLedger
from tests.slurm.ledger_scene import T, event, node


def test_node_that_leaves_service_counts_when_it_leaves() -> None:
    """Not again while it is out; again if it gets worse, or returns and leaves again."""
    ledger = NodeLedger(T)
    looks = (
        (node(), 0),
        (node(flags="DRAIN", reason="Xid 79"), 1),
        (node(flags="DRAIN", reason="Xid 79"), 1),
        (node(state="DOWN", flags="DRAIN", reason="Not responding"), 2),
        (node(flags="DRAIN", reason="Xid 79"), 2),
        (node(), 2),
        (node(flags="FAIL", reason="ask bob"), 3),
    )
    for moment, (seen, total) in enumerate(looks):
        ledger.observe_nodes([seen], T + moment * 30.0)
        assert ledger.failures.total() == total
    assert ledger.failures == {
        ("drain", "gpu"): 1,
        ("down", "not_responding"): 1,
        ("fail", "other"): 1,
    }
    assert ledger.recent["n1"].kind == "fail"


def test_first_look_and_passing_states_are_no_failures() -> None:
    """What was out before, a node that has just been resumed, and a controller that starts."""
    ledger = NodeLedger(T)
    ledger.observe_nodes([node(state="DOWN"), node("n2")], T + 1.0)
    ledger.observe_nodes([node(state="DOWN"), node("n2", flags="NOT_RESPONDING")], T + 31.0)
    ledger.observe_nodes([node(state="UNKNOWN"), node("n2", state="UNKNOWN")], T + 61.0)
    ledger.observe_nodes([node(state="DOWN"), node("n2")], T + 91.0)
    assert not ledger.failures
    ledger.observe_nodes([node(state="DOWN"), node("n2", state="DOWN")], T + 121.0)
    assert ledger.failures.total() == 1


def test_a_node_that_died_while_the_controller_was_away_is_counted_once() -> None:
    """Slurm may never call it DOWN: it stays UNKNOWN, and does not respond."""
    ledger = NodeLedger(T)
    ledger.observe_nodes([node()], T + 1.0)
    ledger.observe_nodes([node(state="UNKNOWN")], T + 31.0)
    assert not ledger.failures
    ledger.observe_nodes([node(state="UNKNOWN", flags="NOT_RESPONDING")], T + 61.0)
    ledger.observe_nodes([node(state="UNKNOWN", flags="NOT_RESPONDING")], T + 91.0)
    ledger.observe_nodes([node(state="DOWN")], T + 121.0)
    assert [(kind, number) for (kind, _), number in ledger.failures.items()] == [("down", 1)]


def test_event_that_a_look_saw_is_no_further_failure() -> None:
    """The look's failure and the event are the same, whenever the event ends."""
    ledger = NodeLedger(T)
    ledger.observe_nodes([node()], T + 10.0)
    ledger.observe_nodes([node(state="DOWN", reason="link down")], T + 40.0)
    ledger.observe_events([event(start=T + 12)], T + 45)
    ledger.observe_nodes([node()], T + 70.0)
    ledger.observe_events([event(start=T + 12, end=T + 60)], T + 75)
    assert ledger.failures == {("down", "network"): 1}
