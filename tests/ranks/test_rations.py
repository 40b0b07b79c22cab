"""The page is shared fairly between users, and between a user's ranks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.core.exposition import Samples, gauge, render
from stagewatch.ranks.model import RANK_LABELS
from stagewatch.ranks.rations import LEFT_OUT, PAGE_BYTES, USER_BYTES, Rations, fair_shares

NAMED = gauge("named", "A name that a rank chose.", (*RANK_LABELS, "name"))
GREEDY, HONEST = 1001, 1002


def ranks(uid: int, count: int) -> dict[tuple[str, ...], int]:
    return {(f"job-{uid}", "train", str(rank)): uid for rank in range(count)}


def look(rations: Rations, owners: dict[tuple[str, ...], int], names: dict[int, int]) -> Samples:
    """Samples in which each rank has as many series as its user's have."""
    out = rations.samples(owners)
    for owner, uid in owners.items():
        for number in range(names[uid]):
            out.add(NAMED, 1, *owner, f"name-{number}".ljust(64, "x"))
    rations.add_left_out()
    return out


def shown(out: Samples, uid: int) -> int:
    return sum(labels[0] == f"job-{uid}" for labels in out.families[NAMED])


@given(st.dictionaries(st.integers(), st.floats(0) | st.just(math.inf), min_size=1))
def test_all_is_given_away_and_no_more(needs: dict[int, float]) -> None:
    shares = fair_shares(needs, 100.0)
    assert sum(shares.values()) == pytest.approx(100)
    least = min(shares.values())
    for who, need in needs.items():
        assert shares[who] >= min(need, 100 / len(needs)) or shares[who] == pytest.approx(least)


def test_whoever_needs_less_than_his_share_has_all_beside_one_who_takes_what_he_gets() -> None:
    rations = Rations()
    owners = ranks(GREEDY, 64) | ranks(HONEST, 8)
    for _ in range(3):
        out = look(rations, owners, {GREEDY: 1000, HONEST: 50})
        assert shown(out, HONEST) == 8 * 50
        assert out.value(LEFT_OUT, str(HONEST)) is None
        assert out.value(LEFT_OUT, str(GREEDY)) == 64 * 1000 - shown(out, GREEDY) == out.dropped
        assert len(render(out)) < 1.2 * PAGE_BYTES


def test_one_user_alone_leaves_room_for_others_to_come() -> None:
    out = look(Rations(), ranks(GREEDY, 64), {GREEDY: 1000})
    assert len(render(out)) < 1.2 * USER_BYTES


def test_what_grows_a_little_loses_nothing_beside_one_who_takes_all() -> None:
    rations = Rations()
    owners = ranks(GREEDY, 64) | ranks(HONEST, 8)
    for names in (10, 30, 31, 60):
        assert shown(look(rations, owners, {GREEDY: 1000, HONEST: names}), HONEST) == 8 * names
