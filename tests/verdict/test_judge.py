"""The verdict over made-up jobs: every evidence, every look-alike, and when nobody is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.ranks.wait_class import WaitClass
from stagewatch.verdict.facts import RankFacts
from stagewatch.verdict.judge import judge
from tests.verdict.jobs import HEALTHY, LEFT, PARKED, SPINNING, job, verdict

OVERDUE: dict[str, Any] = {"progress_age_seconds": 412.0}
RAISED: dict[str, Any] = {
    "first_failure": "RuntimeError in train",
    "first_failure_time": 20.0,
    "first_failure_age_seconds": 300.0,
}


def named(ranks: list[RankFacts]) -> tuple[str, list[int]]:
    found = verdict(ranks)
    return found.evidence, [rank.rank for rank in found.culprits]


def test_job_540() -> None:
    """The incident: seven ranks spin in an all-reduce that one has left for the final barrier."""
    found = verdict(job(8, SPINNING, rank_5=LEFT))
    assert found.stalled
    assert (found.evidence, [rank.pid for rank in found.culprits]) == ("left_loop_early", [4005])
    assert found.sentence == (
        "job 540: 7 ranks spin, rank 5 (pid 4005) has been parked in futex for 6 min 52 s at step "
        "220: it left the loop early"
    )


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        ({"stage": "cleanup"}, "left_loop_early"),
        ({"step": 219}, "left_loop_early"),
        ({"step": 221}, "left_loop_early"),
        ({"collectives": {"world": 219}}, "collective_behind"),  # in the loop, but not yet there
        ({}, "odd_one_out"),
    ],
)
def test_a_parked_rank_left_early_only_if_it_is_elsewhere(
    odd: dict[str, Any], expected: str
) -> None:
    assert named(job(8, SPINNING, rank_2=PARKED | odd)) == (expected, [2])


def test_a_rank_behind_in_a_collective_is_named_whatever_it_does() -> None:
    ranks = job(8, SPINNING, rank_3={"collectives": {"world": 219}})
    assert named(ranks) == ("collective_behind", [3])
    assert verdict(ranks).sentence.endswith("it entered fewer collectives than the others")


def test_the_sequence_beats_the_wait_class() -> None:
    ranks = job(8, SPINNING, rank_3={"collectives": {"world": 219}}, rank_6=PARKED)
    assert named(ranks) == ("collective_behind", [3])


def test_groups_are_compared_each_for_itself() -> None:
    ranks = job(8, SPINNING | {"collectives": {"world": 9, "tensor": 70}})
    ranks = [*ranks[:7], *job(8, SPINNING | {"collectives": {"world": 9, "tensor": 69}})[7:]]
    assert named(ranks) == ("collective_behind", [7])


def test_most_ranks_behind_one_is_no_evidence_against_them() -> None:
    ranks = job(8, SPINNING, rank_3={"collectives": {"world": 221}})
    assert named(ranks) == ("group_only", [])


def test_a_rank_in_storage_is_blocked_by_it() -> None:
    ranks = job(8, SPINNING, rank_1=OVERDUE | {"wait_class": WaitClass.IO, "wait_channel": "nfs"})
    assert named(ranks) == ("io_blocked", [1])
    assert "waiting for storage in nfs" in verdict(ranks).sentence


def test_a_stopped_rank_is_named_before_those_in_storage() -> None:
    ranks = job(
        8,
        SPINNING,
        rank_1=OVERDUE | {"wait_class": WaitClass.IO},
        rank_2=OVERDUE | {"wait_class": WaitClass.STOPPED},
    )
    assert named(ranks) == ("odd_one_out", [2])
    assert "stopped by a signal" in verdict(ranks).sentence


def test_one_rank_that_spins_while_the_others_sleep_is_odd() -> None:
    assert named(job(8, PARKED, rank_4=SPINNING)) == ("odd_one_out", [4])


def test_several_culprits_are_all_named() -> None:
    ranks = job(12, SPINNING, **{f"rank_{rank}": LEFT for rank in range(5)})
    assert named(ranks) == ("left_loop_early", [0, 1, 2, 3, 4])
    assert "ranks 0 (pid 4000), 1 (pid 4001), 2 (pid 4002), 3 (pid 4003) and 1 more have been" in (
        verdict(ranks).sentence
    )


def test_a_rank_that_is_gone_is_named_with_the_first_failure() -> None:
    late = RAISED | {"wait_class": WaitClass.GONE, "first_failure": "late"}
    first = late | {"first_failure_time": 10.0, "first_failure": "MemoryError in train"}
    ranks = job(8, SPINNING, rank_2=late, rank_6=first)
    found = verdict(ranks)
    assert (found.evidence, [rank.rank for rank in found.culprits]) == ("process_gone", [2, 6])
    assert found.stalled
    assert found.sentence.endswith(
        "6 ranks spin, without progress for 6 min 52 s; first failure: rank 6 (pid 4006), "
        "MemoryError in train, 5 min ago"
    )


def test_a_rank_that_is_gone_while_the_others_go_on_is_told_but_no_stall() -> None:
    found = verdict(job(8, rank_2={"wait_class": WaitClass.GONE}))
    assert (found.evidence, found.stalled) == ("process_gone", False)


@pytest.mark.parametrize(
    "ranks",
    [
        job(8, SPINNING),
        job(8, PARKED),
        job(2, SPINNING, rank_1=PARKED),
        job(8, SPINNING, **{f"rank_{rank}": PARKED for rank in range(4)}),
        job(1, SPINNING),
        job(8, OVERDUE | {"wait_class": WaitClass.UNKNOWN}, rank_0=PARKED),
    ],
    ids=["all spin", "all parked", "one against one", "half and half", "alone", "too little known"],
)
def test_nobody_is_named_where_nobody_stands_out(ranks: list[RankFacts]) -> None:
    found = verdict(ranks)
    assert (found.stalled, found.evidence, found.culprits) == (True, "group_only", ())
    assert "no rank of this node stands out" in found.sentence


@pytest.mark.parametrize(
    "ranks",
    [
        job(8),
        job(8, rank_3=PARKED | {"progress_age_seconds": 2.0}),
        job(8, rank_3=SPINNING),
        job(8, SPINNING, rank_0={"stage": "checkpoint", "budget_seconds": 900.0} | OVERDUE),
        job(8, SPINNING | {"budget_seconds": 10.0, "armed": False}),
        job(8, {"stage": "checkpoint", "budget_seconds": 900.0, "progress_age_seconds": 600.0}),
        job(8, PARKED | {"budget_seconds": 600.0}),
        job(1),
        job(8, {"progress_age_seconds": None, "stage": None, "budget_seconds": None, "step": None}),
    ],
    ids=[
        "at work",
        "one parked for a moment",
        "one slow",
        "a long checkpoint of one rank",
        "first steps: nothing is known of how long they take",
        "a long checkpoint of all",
        "a wait as long as it always is",
        "one rank alone",
        "no rank keeps a record",
    ],
)
def test_healthy_look_alikes_are_left_alone(ranks: list[RankFacts]) -> None:
    found = verdict(ranks)
    assert (found.stalled, found.evidence, found.culprits) == (False, "", ())


def test_workers_that_wait_for_the_trainers_checkpoint_are_left_alone() -> None:
    saving = {"stage": "checkpoint", "progress_age_seconds": 600.0, "budget_seconds": 900.0}
    waiting, trainers = job(4, PARKED, role="rollout"), job(8, saving)
    assert [found.stalled for found in judge(waiting + trainers)] == [False, False]
    assert [found.stalled for found in judge(waiting)] == [True]
    dead = job(8, saving | {"wait_class": WaitClass.GONE})
    assert [found.stalled for found in judge(waiting + dead)] == [True, False]


def test_roles_and_jobs_are_judged_apart() -> None:
    """The same rank number occurs in each."""
    ranks = [
        *job(4, SPINNING, rank_1=LEFT),
        *job(4, role="rollout"),
        *job(4, PARKED, job_id="541", rank_1=SPINNING),
    ]
    found = judge(ranks)
    assert [(one.job_id, one.role, one.evidence) for one in found] == [
        ("540", "rollout", ""),
        ("540", "train", "left_loop_early"),
        ("541", "train", "odd_one_out"),
    ]
    assert [one.sentence.split(":")[0] for one in found] == [
        "job 540 (rollout)",
        "job 540 (train)",
        "job 541",
    ]


def test_an_empty_node_has_no_verdict() -> None:
    assert judge([]) == []


facts = st.builds(
    lambda **changes: {**changes},
    progress_age_seconds=st.none() | st.floats(0, 1000),
    budget_seconds=st.none() | st.floats(10, 900),
    armed=st.booleans(),
    wait_class=st.sampled_from(WaitClass),
    stage=st.none() | st.sampled_from(["train", "rollout", "checkpoint", "idle"]),
    step=st.none() | st.integers(0, 3),
    collectives=st.dictionaries(st.sampled_from(["world", "tensor"]), st.integers(0, 3)),
    first_failure_age_seconds=st.none() | st.floats(0, 1000),
    role=st.sampled_from(["train", "rollout"]),
    job_id=st.sampled_from(["540", "541"]),
)


@given(st.lists(facts, max_size=12))
def test_whoever_is_named_is_a_minority_of_a_stalled_role(changes: list[dict[str, Any]]) -> None:
    ranks = [
        RankFacts(
            **{name: getattr(HEALTHY, name) for name in HEALTHY.__slots__}
            | {"rank": rank, "pid": 4000 + rank}
            | change
        )
        for rank, change in enumerate(changes)
    ]
    for found in judge(ranks):
        mine = [rank for rank in ranks if (rank.job_id, rank.role) == (found.job_id, found.role)]
        live = [rank for rank in mine if rank.wait_class is not WaitClass.GONE]
        assert "\n" not in found.sentence
        assert set(map(id, found.culprits)) <= set(map(id, mine))
        if found.stalled:
            assert all(rank.overdue for rank in live)
            assert found.evidence
        if found.culprits and found.evidence != "process_gone":
            assert found.stalled
            assert 2 * len(found.culprits) < len(live)
        if found.evidence in ("", "group_only", "raised"):
            assert found.culprits == ()
