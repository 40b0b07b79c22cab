"""What records say of real gloo jobs that hang: facts, not verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.ranks.records import Group, RankRecord
from tests.client.hooking import needs, records, start_ranks
from tests.waiting import wait_for

Hung = Callable[[str, int, Callable[[list[RankRecord]], bool]], list[RankRecord]]
"""`hung(scenario, ranks, done)`: the records by rank, once they say what `done` expects."""


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Hung]:
    needs("torch")
    with Children() as children:

        def run(
            scenario: str, size: int, done: Callable[[list[RankRecord]], bool]
        ) -> list[RankRecord]:
            start_ranks(children, size, "hang", tmp_path, scenario, tmp_path / "rendezvous")

            def look() -> list[RankRecord]:
                """The ranks once they do not move any more."""
                now = sorted(records(tmp_path), key=lambda record: record.rank)
                if len(now) < size or not done(now):
                    return []
                before = [record.collectives for record in now]
                time.sleep(1.0)
                now = sorted(records(tmp_path), key=lambda record: record.rank)
                return now if before == [record.collectives for record in now] else []

            return wait_for(look, f"{scenario}; see the logs in {tmp_path}", 120)

        yield run


def inside(record: RankRecord) -> dict[str, str]:
    return {name: group.op for name, group in record.inside.items()}


def all_inside(*ranks: int) -> Callable[[list[RankRecord]], bool]:
    """These are inside of something after their mark."""
    return lambda now: all(now[rank].inside and now[rank].lanes[0].marks for rank in ranks)


def test_a_mismatch_shows_both_operations_at_one_number(hung: Hung) -> None:
    now = hung("mismatch", 3, all_inside(0, 1, 2))
    assert [inside(record)["world"] for record in now] == ["all_reduce", "all_reduce", "broadcast"]
    assert [record.collectives["world"] for record in now] == [1, 1, 1]
    assert [record.groups["world"].elements for record in now] == [5, 5, 7]
    assert all(record.groups["world"].size == 3 for record in now)


def test_a_rank_that_skips_its_sub_groups_collective_waits_elsewhere(hung: Hung) -> None:
    now = hung("sub_group", 4, all_inside(0, 1, 2, 3))
    pairs = [next(name for name in record.groups if name.startswith("tp:")) for record in now]
    assert pairs[0] == pairs[1] != pairs[2] == pairs[3]
    assert [record.collectives[pair] for record, pair in zip(now, pairs, strict=True)] == [
        2, 1, 2, 2
    ]  # fmt: skip
    assert inside(now[0]) == {pairs[0]: "all_reduce"}
    for rank in (1, 2, 3):
        assert inside(now[rank]) == {"world": "barrier"}
    assert now[0].collectives["world"] == 0
    assert all(record.groups[pairs[0]].size == 2 for record in now[:2])


def test_a_rank_that_skips_a_backward_is_one_behind_in_the_models_group(hung: Hung) -> None:
    def done(now: list[RankRecord]) -> bool:
        return [record.collectives.get("ddp:world") for record in now] == [3, 2, 3]

    now = hung("backward", 3, lambda now: done(now) and all_inside(0, 2)(now))
    assert [inside(record) for record in now] == [
        {"ddp:world": "backward"},
        {},
        {"ddp:world": "backward"},
    ]
    assert all(record.groups["ddp:world"].size == 3 for record in now)


def test_a_pipeline_shows_who_waits_for_whom(hung: Hung) -> None:
    def done(now: list[RankRecord]) -> bool:
        return now[2].inside != {} and now[0].lanes[0].marks == 2 and now[1].inside == {}

    now = hung("pipeline", 3, lambda now: done(now) and sequence(now[2]) == 2)
    group: Group = now[2].inside["p2p"]
    assert (group.op, group.peer) == ("recv", 1)
    assert all(record.collectives == {"world": 0, "init": 1} for record in now)


def sequence(record: RankRecord) -> int:
    return record.groups["p2p"].sequence if "p2p" in record.groups else 0


def test_an_asynchronous_call_counts_at_its_launch_and_is_inside_while_waited_for(
    hung: Hung,
) -> None:
    now = hung("asynchronous", 2, lambda now: all_inside(0)(now) and now[1].lanes[0].marks == 2)
    assert [record.collectives["world"] for record in now] == [2, 1]
    assert [inside(record) for record in now] == [{"world": "all_reduce"}, {}]


def test_whoever_waits_for_a_rank_that_never_came_is_inside_of_the_rendezvous(hung: Hung) -> None:
    now = hung("rendezvous", 3, lambda now: bool(now[0].inside and now[2].inside))
    for rank in (0, 2):
        assert inside(now[rank]) == {"init": "init_process_group"}
        assert now[rank].groups["init"].size == 3
    assert now[1].groups == {}
