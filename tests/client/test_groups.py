"""Collectives and announced pauses as the record tells them: where a rank is, and until when.

docs/hooks.md and the docstrings of `stagewatch.collective` and `stagewatch.expect` say what these
tests expect.
"""

from __future__ import annotations

import pytest

import stagewatch
from tests.client.conftest import Client, Clock


def inside(client: Client) -> set[str]:
    return set(client.record().inside)


def test_a_block_is_inside_until_it_is_left(client: Client) -> None:
    with stagewatch.collective("tp:1", op="all_reduce", size=4, elements=1024):
        stagewatch.heartbeat()  # another thread's, say: the block still tells
        group = client.record().inside["tp:1"]
    assert (group.sequence, group.op, group.size, group.elements) == (1, "all_reduce", 4, 1024)
    assert (group.peer, group.end_known) == (None, True)
    after = client.record()
    assert after.inside == {}
    assert after.groups["tp:1"].left >= after.groups["tp:1"].entered > 0


def test_a_bare_call_counts_and_lasts_until_the_next_mark(client: Client) -> None:
    stagewatch.collective()
    group = client.record().inside["world"]
    assert (group.sequence, group.op, group.elements, group.end_known) == (
        1,
        "unknown",
        None,
        False,
    )
    stagewatch.heartbeat()
    assert inside(client) == set()
    stagewatch.collective("world")
    stagewatch.collective("tp:1")
    assert inside(client) == {"tp:1"}  # it would not have come here from inside of world
    assert client.record().collectives == {"world": 2, "tp:1": 1}


def test_of_two_threads_in_one_group_the_last_to_enter_counts(client: Client) -> None:
    outer = stagewatch.collective("world")
    outer.__enter__()
    with stagewatch.collective("world"):
        outer.__exit__(None, None, None)
        assert inside(client) == {"world"}
    assert inside(client) == set()


def test_a_send_names_its_peer_and_is_no_sequence_to_compare(client: Client) -> None:
    with stagewatch.collective("p2p", op="send", peer=3):
        group = client.record().inside["p2p"]
    assert (group.op, group.peer) == ("send", 3)
    assert client.record().collectives == {}


def test_an_announced_pause_lasts_over_marks_until_it_is_withdrawn(
    clock: Clock, client: Client
) -> None:
    assert client.record().expected_until == 0
    stagewatch.expect(600)
    until = clock.now / 1e9 + 600
    clock.forward(30)
    stagewatch.heartbeat()
    assert client.record().expected_until == pytest.approx(until)
    stagewatch.expect(2.5)
    assert client.record().expected_until == pytest.approx(clock.now / 1e9 + 2.5)
    stagewatch.expect(0)
    assert client.record().expected_until == 0
