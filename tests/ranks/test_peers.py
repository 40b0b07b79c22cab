"""Whom the work of a rank is compared with, as its record tells it."""

from __future__ import annotations

import dataclasses

import pytest

from stagewatch.ranks.peers import MESSAGES_SECONDS, NOBODY, ROLE, peers_of
from stagewatch.ranks.records import Group, RankRecord

NOW = 5000.0


def among(record: RankRecord, **sizes: int) -> RankRecord:
    """A rank in groups of these sizes, whose last message was 14 s ago if it is in `p2p`."""
    groups = {
        name.replace("__", ":"): Group(7, NOW - 14, NOW - 14, True, size, "", None, None)
        for name, size in sizes.items()
    }
    return dataclasses.replace(record, groups=groups)


def peers(record: RankRecord, now: float = NOW, admits: bool = True) -> str:
    return peers_of(record, now, lambda *_: admits)


@pytest.mark.parametrize("name", ["dp__3", "mesh_dp", "DATA_PARALLEL_GROUP__9", "data-parallel"])
def test_a_rank_has_the_peers_of_its_data_parallel_group(record: RankRecord, name: str) -> None:
    assert peers(among(record, world=8, **{name: 4}, p2p=0, pp__1=2)) == name.replace("__", ":")


def test_of_several_the_smallest_counts(record: RankRecord) -> None:
    assert peers(among(record, dp=16, dp_shard=4)) == "dp_shard"


@pytest.mark.parametrize("name", ["dp__0", "adp__1", "dpx", "world"])
def test_two_members_or_another_name_make_no_such_group(record: RankRecord, name: str) -> None:
    assert peers(among(record, **{name: 2 if name == "dp__0" else 8})) == ROLE


def test_a_name_that_may_become_no_label_is_not_shown(record: RankRecord) -> None:
    assert peers(among(record, dp=4), admits=False) == ROLE


def test_who_hands_on_messages_has_no_peers_until_ten_minutes_later(record: RankRecord) -> None:
    """What a library sends to try its connections says nothing of the steps after it."""
    sends = among(record, world=4, p2p=0)
    assert peers(sends) == NOBODY
    assert peers(sends, NOW + MESSAGES_SECONDS) == ROLE


@pytest.mark.parametrize("name", ["PIPELINE_MODEL_PARALLEL_GROUP__9", "pp__0", "pipe"])
def test_nor_has_a_member_of_a_group_that_is_named_for_it(record: RankRecord, name: str) -> None:
    assert peers(among(record, **{name: 4})) == NOBODY
    assert peers(among(record, **{name: 1})) == ROLE
