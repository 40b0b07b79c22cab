"""Sums over the ranks of a role on a node, which rules read instead of every rank."""

from __future__ import annotations

import dataclasses

from stagewatch.core.exposition import Samples
from stagewatch.ranks import node_sums
from stagewatch.ranks.records import Life, RankRecord

ROLE = ("540", "train")


def sums(*records: RankRecord, later: float = 0.0) -> Samples:
    """So many seconds after the first record's last mark of progress."""
    out = Samples()
    node_sums.add_node_sums(out, records, records[0].progress + later, records[0].created + later)
    return out


def in_stages(out: Samples) -> dict[str, float]:
    """How many are where, stages with nobody left out."""
    return {
        labels[-1]: count for labels, count in out.families[node_sums.IN_STAGE].items() if count
    }  # type: ignore[misc]


def new(record: RankRecord, rank: int) -> RankRecord:
    """A rank that has marked nothing yet."""
    return dataclasses.replace(record, rank=rank, lanes=(), groups={}, totals={})


def test_dead_ranks_are_told_apart_and_are_in_no_stage(record: RankRecord) -> None:
    dead = dataclasses.replace(record, rank=4, life=Life.GONE, created=record.created - 100)
    out = sums(record, dead, later=7.0)
    assert out.value(node_sums.LIVE, *ROLE) == 1
    assert out.families[node_sums.GONE] == {(*ROLE, "4"): 1}
    assert sum(in_stages(out).values()) == 1
    assert out.value(node_sums.EARLIEST, *ROLE) == record.created
    assert out.value(node_sums.SHORTEST_AGE, *ROLE) == out.value(node_sums.LONGEST_AGE, *ROLE) == 7
    assert out.value(node_sums.NEWEST_STEP, *ROLE) == record.lanes[0].step
    none = sums(dead)
    assert none.value(node_sums.LIVE, *ROLE) is None
    assert none.value(node_sums.SHORTEST_AGE, *ROLE) is None
    assert none.value(node_sums.LONGEST_AGE, *ROLE) == 0


def test_a_new_rank_that_has_marked_nothing_starts_for_half_an_hour(record: RankRecord) -> None:
    ranks = new(record, 0), new(record, 1)
    out = Samples()
    node_sums.add_node_sums(out, ranks, 0.0, record.created + node_sums.NEW_SECONDS - 1)
    assert in_stages(out) == {"init": 2}
    out = Samples()
    node_sums.add_node_sums(out, ranks, 0.0, record.created + node_sums.NEW_SECONDS + 1)
    assert in_stages(out) == {"idle": 2}


def test_a_stage_that_ranks_have_left_counts_none(record: RankRecord) -> None:
    """Prometheus that is started anew would else show it for minutes beside the present one."""
    out = sums(record)
    left = {*record.totals} - {*in_stages(out)}
    assert left
    assert {out.value(node_sums.IN_STAGE, *ROLE, stage) for stage in left} == {0}
