"""The verdict over made-up jobs: every evidence, every look-alike, and when nobody is named."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.judgement.facts import Inside, KernelWait, RankFacts
from stagewatch.judgement.graph import draw
from stagewatch.judgement.judge import judge
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.wait_class import WaitClass
from tests.judgement.cases import (
    CASES,
    LATE,
    QUEUE,
    ROLES,
    absent,
    hang,
    inside,
    member,
    ranks_of,
    sends,
)
from tests.judgement.jobs import HEALTHY, LEFT, PARKED, SPINNING, job, verdict

OVERDUE: dict[str, Any] = {"progress_age_seconds": 412.0}
RAISED: dict[str, Any] = {
    "first_failure": "RuntimeError in train",
    "first_failure_time": 20.0,
    "first_failure_age_seconds": 300.0,
}


def named(ranks: list[RankFacts]) -> tuple[str, list[int]]:
    found = verdict(ranks)
    return found.evidence, [rank.rank for rank in found.culprits]


def test_every_case_gets_its_verdict_and_every_role_beside_the_others() -> None:
    expected = [(name, case, verdict(case.ranks("540"))) for name, case in CASES.items()]
    expected += [
        (name, roles[found.role], found)
        for name, roles in ROLES.items()
        for found in judge(ranks_of(name))
    ]
    wrong = [
        (name, found.role, found.stalled, found.charges, found.evidence)
        for name, case, found in expected
        if found.stalled is not case.stalled
        or {charge.rank.rank: charge.evidence for charge in found.charges} != case.culprits
        or not (found.charges or found.evidence == case.unnamed)
    ]
    assert wrong == []


def test_job_540() -> None:
    """The incident: seven ranks spin in an all-reduce that one has left for the final barrier."""
    found = verdict(job(8, SPINNING, rank_5=LEFT))
    assert found.stalled
    assert (found.evidence, [rank.pid for rank in found.culprits]) == ("left_loop_early", [4005])
    assert sentence(found) == (
        "job 540: rank 5 (pid 4005) holds up the job: parked in futex for 6 min 52 s at step 220; "
        "it left the loop early; 7 ranks wait for it, spinning, in all_reduce of world"
    )


def test_a_rank_between_two_steps_is_not_said_to_have_left_the_loop() -> None:
    """It waits at its data loader or a queue; only its record cannot tell that from the end."""
    told = sentence(verdict(job(8, SPINNING, rank_5=LEFT | {"stage": "idle"})))
    assert "it is between two stages of the loop; 7 ranks wait for it" in told


def test_a_rank_that_others_wait_for_is_named_with_what_it_has_not_entered() -> None:
    late = {"collectives": {"world": 219}, "inside": {}}
    found = verdict(job(8, SPINNING, rank_3=late))
    assert named(job(8, SPINNING, rank_3=late)) == ("awaited", [3])
    assert (found.charges[0].group, found.charges[0].op) == ("world", "all_reduce")
    assert sentence(found).endswith(
        "; 7 ranks wait for it, spinning, in all_reduce of world, which it has not entered"
    )


def test_a_mismatch_is_told_with_what_the_others_do() -> None:
    odd = {"inside": {"world": Inside("broadcast", 410.0)}}
    found = verdict(job(8, SPINNING, rank_3=odd))
    assert (found.evidence, [rank.rank for rank in found.culprits]) == ("mismatch", [3])
    assert sentence(found).endswith(
        "; its broadcast does not match the others' all_reduce of world; 7 ranks spin"
    )


def test_ranks_that_wait_for_each_other_are_told_and_not_accused() -> None:
    found = verdict(CASES["a-cycle"].ranks("540"))
    assert sentence(found).endswith(
        "ranks wait for each other: ranks 0, 2 in all_reduce of a; ranks 1, 3 in all_reduce of b"
    )


def test_the_numbers_that_are_not_here_are_told() -> None:
    found = verdict(CASES["members-missing"].ranks("540"))
    assert "they wait for ranks that are not here (6, 7): ranks 0, 1, 2, 3 and 2 more in" in (
        sentence(found)
    )


def test_several_culprits_are_all_named() -> None:
    ranks = job(12, SPINNING, **{f"rank_{rank}": LEFT for rank in range(5)})
    assert named(ranks) == ("left_loop_early", [0, 1, 2, 3, 4])
    assert "ranks 0 (pid 4000), 1 (pid 4001), 2 (pid 4002), 3 (pid 4003) and 1 more hold up" in (
        sentence(verdict(ranks))
    )


def test_a_rank_that_is_gone_is_named_with_the_first_failure() -> None:
    late = RAISED | {"wait_class": WaitClass.GONE, "first_failure": "late"}
    first = late | {"first_failure_time": 10.0, "first_failure": "MemoryError in train"}
    ranks = job(8, SPINNING, rank_2=late, rank_6=first)
    found = verdict(ranks)
    assert (found.evidence, [rank.rank for rank in found.culprits]) == ("process_gone", [2, 6])
    assert found.stalled
    assert sentence(found).endswith(
        "6 ranks spin, without progress for 6 min 52 s; first failure: rank 6 (pid 4006), "
        "MemoryError in train, 5 min ago"
    )


def test_what_peers_of_a_killed_rank_raise_is_not_told_as_the_first_failure() -> None:
    echo = RAISED | {"first_failure": "ConnectionResetError in train"}
    found = verdict(job(8, SPINNING, rank_0=echo, rank_2={"wait_class": WaitClass.GONE}))
    assert [rank.rank for rank in found.culprits] == [2]
    assert "first failure" not in sentence(found)
    assert "; also raised: rank 0 (pid 4000), ConnectionResetError in train" in sentence(found)


def test_a_rank_that_is_gone_while_the_others_go_on_is_told_but_no_stall() -> None:
    found = verdict(job(8, rank_2={"wait_class": WaitClass.GONE}))
    assert (found.evidence, found.stalled) == ("process_gone", False)


@pytest.mark.parametrize(
    "ranks",
    [
        job(8),
        job(8, rank_3=PARKED | {"progress_age_seconds": 2.0}),
        job(8, rank_3=SPINNING),
        job(8, {"stage": "checkpoint", "budget_seconds": 900.0, "progress_age_seconds": 600.0}),
        job(8, PARKED | {"budget_seconds": 600.0}),
        job(1),
        job(8, {"progress_age_seconds": None, "stage": None, "budget_seconds": None, "step": None}),
    ],
    ids=[
        "at work",
        "one parked for a moment",
        "one slow",
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
        *job(4, PARKED, job_id="541", rank_1={"wait_class": WaitClass.STOPPED}),
    ]
    found = judge(ranks)
    assert [(one.job_id, one.role, one.evidence) for one in found] == [
        ("540", "rollout", ""),
        ("540", "train", "left_loop_early"),
        ("541", "train", "odd_one_out"),
    ]
    assert [sentence(one).split(":")[0] for one in found] == [
        "job 540 (rollout)",
        "job 540 (train)",
        "job 541",
    ]


facts = st.builds(
    lambda **changes: {**changes},
    progress_age_seconds=st.none() | st.floats(0, 1000),
    budget_seconds=st.none() | st.floats(10, 900),
    inside=st.dictionaries(
        st.sampled_from(["world", "tensor", "p2p"]),
        st.builds(
            Inside,
            st.sampled_from(["all_reduce", "barrier", "unknown"]),
            st.just(9.0),
            st.none() | st.integers(0, 3),
            st.none() | st.integers(8, 9),
        ),
    ),
    group_sizes=st.dictionaries(st.sampled_from(["world", "tensor"]), st.integers(1, 5)),
    started=st.none() | st.sampled_from([1000.0, 2000.0]),
    expected_seconds=st.none() | st.just(5.0),
    at_work=st.booleans(),
    step_age_seconds=st.none() | st.just(60.0),
    wait_class=st.sampled_from(WaitClass),
    stage=st.none() | st.sampled_from(["train", "rollout", "checkpoint", "idle"]),
    step=st.none() | st.integers(0, 3),
    collectives=st.dictionaries(st.sampled_from(["world", "tensor"]), st.integers(0, 3)),
    first_failure_age_seconds=st.none() | st.floats(0, 1000),
    role=st.sampled_from(["train", "rollout"]),
    job_id=st.sampled_from(["540", "541"]),
    left_seconds=st.none() | st.none() | st.sampled_from([20.0, 60.0]),
    world_size=st.sampled_from([None, 3, 12]),
)


@given(st.lists(facts, max_size=12))
def test_who_waits_is_never_named_while_somebody_does_not(changes: list[dict[str, Any]]) -> None:
    ranks = [
        dataclasses.replace(HEALTHY, rank=rank, pid=4000 + rank, **change)
        for rank, change in enumerate(changes)
    ]
    ranks = [
        rank if rank.left_seconds is None else dataclasses.replace(rank, wait_class=WaitClass.GONE)
        for rank in ranks
    ]
    for found in judge(ranks):
        mine = [rank for rank in ranks if (rank.job_id, rank.role) == (found.job_id, found.role)]
        live = [rank for rank in mine if rank.wait_class is not WaitClass.GONE]
        graph = draw(live)
        waiting = [id(live[place]) for place in graph.waits]
        awaited = [id(live[place]) for place in graph.awaited]
        everybody_waits = graph.awaited.keys() <= graph.waits
        assert "\n" not in sentence(found)
        assert set(map(id, found.culprits)) <= set(map(id, mine))
        absent = [charge for charge in found.charges if charge.evidence == "missing"]
        assert all(charge.rank.left_seconds == 60.0 for charge in absent)
        assert not found.charges or found.stalled or absent or found.evidence == "process_gone"
        for charge in found.charges:
            if id(charge.rank) not in waiting or charge.evidence == "mismatch":
                continue
            # Everybody who is waited for waits, and this rank does so at the end of the programme.
            assert everybody_waits
            assert (charge.evidence, charge.rank.stage) == ("left_loop_early", "idle")
            assert id(charge.rank) in awaited
            assert 2 * len(found.charges) < len(live)
        if found.stalled:
            assert found.evidence
        if found.evidence in ("", "group_only", "raised", "cycle", "other_role"):
            assert found.culprits == ()


def test_who_left_this_node_is_told_but_not_named_where_the_job_has_ranks_elsewhere() -> None:
    """They may have moved, and who is elsewhere may have left as well, or be what all wait for."""
    of_sixteen = inside("world", 220, 16) | LATE | {"world_size": 16}
    ranks = job(8, of_sixteen, rank_3=absent(60.0))
    found = verdict(ranks)
    assert (found.stalled, found.evidence, found.charges) == (True, "missing", ())
    assert sentence(found).endswith("; rank 3 left 1 min ago")
    few = job(8, of_sixteen, **{f"rank_{rank}": absent(60.0) for rank in range(1, 8)})
    assert verdict(few).charges == ()
    unknown = job(8, inside("p2p", 220, 0) | LATE | {"world_size": None}, rank_3=absent(60.0))
    assert verdict(unknown).charges == ()


def test_who_left_is_told_with_when_and_what_the_others_wait_in() -> None:
    ranks = job(8, inside("world", 220, 8, "barrier") | LATE, rank_3=absent(60.0))
    assert sentence(verdict(ranks)) == (
        "job 540: no progress for 6 min 52 s at step 220: 7 ranks spin, ranks 0, 1, 2, 4 and 3 "
        "more in barrier of world; they wait for others, but rank 3 left 1 min ago"
    )


def test_ranks_of_a_role_that_has_ended_are_told_where_another_role_waits_for_them() -> None:
    trainers = job(2, inside("weights", 3, 4) | LATE | {"world_size": 2})
    rollouts = job(2, absent(60.0) | {"world_size": 2}, role="rollout", rank_1=absent(90.0))
    told = {one.role: one for one in judge([*trainers, *rollouts])}
    assert sentence(told["rollout"]) == (
        "job 540 (rollout): ranks 0, 1 left, the last one 1 min ago; the job's other roles wait"
    )
    assert [charge.evidence for charge in told["rollout"].charges] == ["missing", "missing"]
    assert told["train"].evidence == "missing"


@pytest.mark.parametrize(("seconds", "missed"), [(470.0, True), (475.0, False)])
def test_a_role_that_has_left_is_at_fault_if_the_others_stopped_soon(
    seconds: float, missed: bool
) -> None:
    waiting = LATE | {"collectives": {}, "stage": "idle", "wait_class": WaitClass.POLL}
    loader = job(1, absent(seconds) | {"world_size": 1}, role="loader")
    found = judge([*job(2, waiting), *job(2, waiting, role="rollout"), *loader])
    named = {one.role: [charge.evidence for charge in one.charges] for one in found}
    assert named == {"train": [], "rollout": []} | ({"loader": ["missing"]} if missed else {})


def test_ranks_of_a_role_that_has_ended_well_are_not_told_of() -> None:
    ranks = job(4) + job(2, absent(60.0) | {"world_size": 2}, role="rollout")
    (found,) = judge(ranks)
    assert (found.role, found.wrong) == ("train", False)


def test_a_rank_that_has_just_left_may_be_what_one_that_stands_out_waits_for() -> None:
    ranks = job(4, SPINNING | {"inside": {}, "collectives": {}}, rank_1={"stage": "reward"})
    assert verdict(ranks).evidence == "stage_differs"
    ranks[3] = dataclasses.replace(ranks[3], **absent(20.0))
    found = verdict(ranks)
    assert (found.stalled, found.charges) == (True, ())
    assert "; rank 3 left 20 s ago, and they may wait for that" in sentence(found)


@pytest.mark.parametrize(("seconds", "evidence"), [(20.0, "other_role"), (400.0, "outsider")])
def test_a_process_is_not_named_while_it_may_wait_for_who_has_just_left(
    seconds: float, evidence: str
) -> None:
    address = {"kernel_waits": (KernelWait("a receive from a connection", address="10.0.0.9:77"),)}
    waiting = job(1, LATE | address | {"collectives": {}, "wait_class": WaitClass.PARKED})
    other = job(2, LATE | {"collectives": {}, "stage": "idle"}, role="driver")
    lost = job(2, absent(seconds) | {"world_size": 2}, role="rollout")
    found = {one.role: one.evidence for one in judge([*waiting, *other, *lost])}
    assert found["train"] == evidence


@pytest.mark.parametrize(("late", "evidence"), [(29.0, "other_role"), (31.0, "stage_differs")])
def test_who_stands_out_in_a_job_of_several_roles_is_not_named_at_once(
    late: float, evidence: str
) -> None:
    alike: dict[str, Any] = LATE | {"collectives": {}}
    alike |= {"progress_age_seconds": 40 + late, "budget_seconds": 40.0}
    ranks = job(4, alike, rank_2={"stage": "reward"})
    other = job(2, {"progress_age_seconds": 2.0}, role="rollout")
    found = {one.role: one.evidence for one in judge([*ranks, *other])}
    assert found["train"] == evidence
    (alone,) = judge(ranks)
    assert alone.evidence == "stage_differs"


def test_a_culprit_inside_a_call_is_told_with_what_it_has_called() -> None:
    search = {"stage": "reward", "calls": {"search": 42.0, "sandbox": 9.0}}
    found = verdict(job(8, SPINNING, rank_3=PARKED | search | {"collectives": {"world": 219}}))
    assert found.evidence == "awaited"
    assert "rank 3 (pid 4003) holds up the job: parked in futex for" in sentence(found)
    assert ", inside its call of search for 42 s; 7 ranks wait for it, spinning, in" in (
        sentence(found)
    )


def test_a_call_that_has_just_begun_is_not_told_of() -> None:
    search = {"calls": {"search": 9.9}, "collectives": {"world": 219}}
    found = verdict(job(8, SPINNING, rank_3=PARKED | search))
    assert found.evidence == "awaited"
    assert "search" not in sentence(found)


def test_a_role_whose_ranks_all_wait_for_tools_has_nobody_at_fault() -> None:
    found = verdict(job(4, PARKED | {"calls": {"environment pool": 120.0}}))
    assert (found.stalled, found.evidence, found.charges) == (True, "call", ())
    assert "all ranks are inside their calls of environment pool for up to 2 min" in sentence(found)


@pytest.mark.parametrize("shape", ["pairs", "ring", "queue"])
def test_a_large_job_takes_a_time_that_grows_with_its_ranks(shape: str) -> None:
    """A quarter of a minute and more, if it grew with their square."""
    size, few = 16_384, 4_000
    special = {
        "ring": {n: sends("recv", (n + 1) % size) for n in range(size)},
        "pairs": {n: inside(f"tp:{n // 2}", 70, 2) for n in range(0, size, 2)}
        | {n: member((f"tp:{n // 2}", 69, 2)) | PARKED for n in range(1, size, 2)},
        "queue": {n: inside("world", 51, size) for n in range(few, size)}
        | {
            n: member(("world", 50, size)) | PARKED | {"stage": "idle", "kernel_waits": (QUEUE,)}
            for n in range(few)
        },
    }[shape]
    ranks = hang(size, {"collectives": {}}, special, {}).ranks("540")
    began = time.process_time()
    found = verdict(ranks)
    sentence(found)
    assert time.process_time() - began < 6.0
    assert (found.evidence, len(found.charges)) == {
        "ring": ("cycle", 0),
        "pairs": ("awaited", size // 2),
        "queue": ("awaited", few),
    }[shape]
