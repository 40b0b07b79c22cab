"""Collectives, announced pauses and longest gaps as series of the ranks that keep a record.

docs/metrics.md says what each series means.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from stagewatch import record as layout
from stagewatch.core.exposition import Metric, Samples
from stagewatch.ranks.records import Group, Life, RankRecord, StageTotals, parse
from stagewatch.ranks.stages import (
    COLLECTIVES,
    ELEMENTS,
    EXPECTED,
    GROUP_SIZE,
    INSIDE,
    LONGEST_GAP,
    MAX_EXPECTED_SECONDS,
    RECENT_GAP,
    StagesCollector,
)
from stagewatch.record import BUCKETS
from tests.records import Shown, patched

NOW = 5000.0
KEY = ("540", "train", "3")
IN_WORLD = Group(7, NOW - 40, NOW - 90, True, 8, "all_reduce", 4096, None)


@pytest.fixture
def record(record: RankRecord) -> RankRecord:
    lane = dataclasses.replace(record.lanes[0], progress=NOW - 60)
    return dataclasses.replace(record, lanes=(lane,), groups={"world": IN_WORLD})


def shown(*records: RankRecord, stages: StagesCollector | None = None) -> Samples:
    directory: Any = Shown(*records)
    if stages is None:
        stages = StagesCollector(directory, boot_clock=lambda: NOW)
    stages._ranks = directory
    return stages.collect()


def series(samples: Samples, metric: Metric) -> dict[tuple[str, ...], Any]:
    return dict(samples.families.get(metric, {}))


def with_group(record: RankRecord, name: str = "world", **changes: Any) -> RankRecord:
    return dataclasses.replace(record, groups={name: dataclasses.replace(IN_WORLD, **changes)})


def test_a_rank_inside_a_collective_shows_where_and_for_how_long(record: RankRecord) -> None:
    found = shown(record)
    assert series(found, INSIDE) == {(*KEY, "world", "all_reduce", ""): 40}
    assert series(found, ELEMENTS) == {(*KEY, "world"): 4096}
    assert series(found, GROUP_SIZE) == {(*KEY, "world"): 8}
    assert series(found, COLLECTIVES) == {(*KEY, "world"): 7}


def test_short_collectives_and_those_of_dead_ranks_show_no_time(record: RankRecord) -> None:
    assert not series(shown(with_group(record, entered=NOW - 0.9)), INSIDE)
    assert series(shown(with_group(record, entered=NOW - 1)), INSIDE)
    assert not series(shown(with_group(record, entered=NOW + 50)), INSIDE)  # a hostile time
    gone = shown(dataclasses.replace(record, life=Life.GONE))
    assert not series(gone, INSIDE)
    assert not series(gone, ELEMENTS)


def test_what_is_not_told_ends_with_a_mark_or_another_entry(record: RankRecord) -> None:
    bare = dataclasses.replace(IN_WORLD, end_known=False)
    assert series(shown(dataclasses.replace(record, groups={"world": bare})), INSIDE)
    newer = dataclasses.replace(bare, entered=NOW - 39, left=NOW - 38, end_known=True)
    both = dataclasses.replace(record, groups={"world": bare, "tp:1": newer})
    assert not series(shown(both), INSIDE)
    lane = dataclasses.replace(record.lanes[0], progress=NOW - 39)
    marked = dataclasses.replace(record, lanes=(*record.lanes, lane), groups={"world": bare})
    assert not series(shown(marked), INSIDE)


def test_a_send_shows_its_peer_but_no_sequence_and_no_size(record: RankRecord) -> None:
    found = shown(with_group(record, "p2p", op="recv", peer=2, size=None, elements=None))
    assert series(found, INSIDE) == {(*KEY, "p2p", "recv", "2"): 40}
    for metric in (COLLECTIVES, GROUP_SIZE, ELEMENTS):
        assert not series(found, metric)


@pytest.mark.parametrize(
    ("until", "left"), [(0.0, None), (NOW - 1, None), (NOW + 90, 90), (9e9, MAX_EXPECTED_SECONDS)]
)
def test_what_is_left_of_an_announced_pause(
    record: RankRecord, until: float, left: float | None
) -> None:
    found = shown(dataclasses.replace(record, expected_until=until))
    assert found.value(EXPECTED, *KEY) == left


def test_gaps_are_the_longest_of_all_ranks_also_of_those_that_are_gone(record: RankRecord) -> None:
    def rank(number: int, longest: float, recent: float, life: Life = Life.ALIVE) -> RankRecord:
        counts = (1,) + (0,) * (BUCKETS - 1)
        totals = {"train": StageTotals(counts, 1.0, counts, 1.0, longest, recent)}
        return dataclasses.replace(record, rank=number, name=str(number), totals=totals, life=life)

    ranks = [rank(0, 5, 3), rank(1, 90, 2), rank(2, 400, 399, Life.GONE)]
    found = shown(*ranks)
    assert series(found, LONGEST_GAP) == {("540", "train", "train"): 400}
    assert series(found, RECENT_GAP) == {("540", "train", "train"): 399}


def test_hostile_words_of_the_table_are_read_as_unknown(raw: bytes) -> None:
    at = (layout.COLLECTIVES_AT + layout.GROUP_SIZE) // layout.WORD
    for value in (-(2**63), -1, 2**63 - 1):
        words = {at + word: value for word in range(8)}
        record = parse(patched(raw, words))
        group = record.groups["world"]
        assert (group.op, group.size, group.peer) == ("unknown", None, None)
        assert group.sequence >= 0 <= group.entered
