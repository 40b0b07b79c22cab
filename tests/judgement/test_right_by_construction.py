"""Classes of jobs that an exception each would be needed for, were the judgement not right by
itself: who waits for nobody is at fault, and what explains nobody's wait is not."""

from __future__ import annotations

from typing import Any

import pytest

from stagewatch.judgement.facts import Inside, KernelWait, RankFacts, silent_seconds
from stagewatch.judgement.judge import judge
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.wait_class import WaitClass
from tests.judgement.cases import (
    ASLEEP,
    GONE,
    IN_A_LOCK,
    LATE,
    ON_ITSELF,
    UNTOLD,
    absent,
    inside,
    member,
    sends,
)
from tests.judgement.jobs import PARKED, SPINNING, job

Named = dict[tuple[str, int], str]


def named(ranks: list[RankFacts]) -> Named:
    return {
        (verdict.role, charge.rank.rank): charge.evidence
        for verdict in judge(ranks)
        for charge in verdict.charges
    }


def nobody(ranks: list[RankFacts]) -> set[str]:
    """What is known where nobody is named."""
    assert not named(ranks)
    return {verdict.evidence for verdict in judge(ranks) if verdict.stalled}


def test_a_send_meets_a_receive_and_no_two_of_a_kind_meet() -> None:
    def pair(mine: str, theirs: str) -> list[RankFacts]:
        return job(2, LATE, rank_0=sends(mine, 1), rank_1=sends(theirs, 0))

    assert nobody(pair("recv", "recv")) == {"cycle"}
    assert nobody(pair("send", "send")) == {"cycle"}
    assert nobody(pair("send", "recv")) == {"group_only"}
    assert nobody(pair("unknown", "recv")) == {"group_only"}


@pytest.mark.parametrize("later", [20.0, 90.0])
def test_a_rank_that_was_restarted_in_place_is_not_compared_by_its_counts(later: float) -> None:
    """It is inside with the others, whatever it has counted since; rank 3 is not."""
    ranks = job(
        4,
        LATE | inside("world", 220, 4) | {"started": 1000.0},
        rank_1=inside("world", 7, 4) | {"started": 1000.0 + later},
        rank_3=member(("world", 219, 4)) | PARKED | {"started": 1000.0},
    )
    assert named(ranks) == {("train", 3): "awaited"}


def test_a_rank_in_another_substage_is_not_odd() -> None:
    """Its role may always do two things at once."""
    common = PARKED | {"collectives": {}, "inside": {}, "substage": "writes"}
    assert nobody(job(5, common, rank_1={"substage": "reads"})) == {"group_only"}
    assert named(job(5, common, rank_1={"stage": "eval"})) == {("train", 1): "stage_differs"}


def test_the_only_rank_of_a_job_holds_it_up() -> None:
    alone = job(1, PARKED | {"world_size": 1, "collectives": {}})
    assert named(alone) == {("train", 0): "alone"}
    (verdict,) = judge(alone)
    assert verdict.charges[0].confidence == "likely"
    assert "rank 0 (pid 4000)" in sentence(verdict)
    assert named(job(1, PARKED | {"world_size": 1, "collectives": {}, "stage": "idle"})) == {}


def test_the_last_rank_that_lives_after_orderly_ends_is_named() -> None:
    last = PARKED | {"collectives": {"world": 220}, "world_size": 4}
    ranks = job(4, last, **{f"rank_{rank}": absent() for rank in range(3)})
    assert named(ranks) == {("train", 3): "alone"}
    just = job(4, last, **{f"rank_{rank}": absent(20.0) for rank in range(3)})
    assert named(just) == {}


def test_the_last_rank_may_have_left_a_collective_whose_end_is_unknown() -> None:
    """It holds up the job, in that or after it; not while some of its world are out of sight."""
    last = LATE | PARKED | inside("world", 220, 4, "unknown") | {"world_size": 4}
    ended = {f"rank_{rank}": absent() for rank in range(3)}
    assert named(job(4, last, **ended)) == {("train", 3): "alone"}
    assert named(job(4, last | inside("world", 220, 4), **ended)) == {("train", 3): "mismatch"}
    assert named(job(1, last)) == {}


def test_only_the_rank_that_died_is_named_beside_one_that_is_parked() -> None:
    ranks = job(8, LATE | inside("world", 220, 8), rank_2=GONE, rank_5=PARKED)
    assert named(ranks) == {("train", 2): "process_gone"}


def test_the_only_member_that_a_group_of_two_roles_misses_awaits_no_role() -> None:
    """It is idle, as it would be while it waits for the other role; but that waits for it."""
    meets = inside("sync", 9, 5, "broadcast")
    idle = member(("sync", 8, 5)) | PARKED | {"stage": "idle"}
    trainers = job(3, LATE | meets, rank_1=idle)
    workers = job(2, LATE | meets, role="rollout")
    assert named([*trainers, *workers]).keys() == {("train", 1)}


def test_a_lost_node_is_told_as_a_node_with_its_ranks() -> None:
    lost = absent(60.0) | {"node_lost": True, "node": "n3"}
    ranks = job(8, LATE | inside("world", 220, 8), rank_6=lost, rank_7=lost)
    assert named(ranks) == {("train", 6): "node_lost", ("train", 7): "node_lost"}
    (verdict,) = judge(ranks)
    assert sentence(verdict) == (
        "job 540: no progress for 6 min 52 s at step 220: node n3 does not answer, with ranks "
        "6, 7; the others wait"
    )


def test_half_of_a_group_that_is_in_sight_is_no_majority() -> None:
    """Of eight members this node has four: three that lag are not most of them."""
    behind = {f"rank_{rank}": inside("world", 219, 8) for rank in range(3)}
    ranks = job(4, LATE | inside("world", 220, 8), **behind)
    assert "mismatch" not in named(ranks).values()


def test_collectives_that_advance_are_progress_until_a_stage_has_shown_its_length() -> None:
    """A first hand-over of weights is many broadcasts, and no mark."""
    broadcast = {"sync": Inside("broadcast", 4.0)}
    assert silent_seconds(90.0, broadcast, taught=False) == 4.0
    assert silent_seconds(90.0, broadcast, taught=True) == 90.0
    assert silent_seconds(90.0, {}, taught=False) == 90.0
    assert silent_seconds(None, broadcast, taught=False) is None
    assert silent_seconds(2.0, {"sync": Inside("broadcast", 40.0)}, taught=False) == 2.0


def test_ranks_that_all_keep_a_core_busy_are_not_said_to_wait_for_one_another() -> None:
    busy = {"progress_age_seconds": 112.0, "wait_class": WaitClass.SPIN, "collectives": {}}
    assert nobody(job(4, busy | {"inside": {}})) == {"group_only"}
    assert named(job(8, SPINNING)) == {}


def test_a_role_does_not_idle_while_ranks_of_another_are_lost_with_their_node() -> None:
    """Between two stages, as it may be for hours where nobody asks it for anything."""
    idle = LATE | PARKED | {"stage": "idle", "collectives": {}}
    decode = job(3, idle, role="decode")
    lost = absent(60.0) | {"world_size": 2, "node": "n3"}
    assert named([*decode, *job(2, lost, role="prefill")]) == {}
    prefill = job(2, lost | {"node_lost": True}, role="prefill")
    of_the_node = {("prefill", rank): "node_lost" for rank in range(2)}
    assert named([*decode, *prefill]) == of_the_node


def test_a_role_does_not_idle_while_it_waits_for_a_rank_that_cannot_go_on() -> None:
    """The caller of three replicas makes no marks, and waits for itself."""
    asks = {"kernel_waits": (KernelWait("a receive", "caller", 0, through="broker (pid 7)"),)}
    idle = LATE | PARKED | {"stage": "idle", "collectives": {}} | asks
    replicas = job(3, idle, role="replica")
    for waits, found in ((ON_ITSELF, {("caller", 0): "awaited_through"}), (ASLEEP, {})):
        caller = job(1, UNTOLD | {"progress_age_seconds": None} | waits, role="caller")
        assert named([*replicas, *caller]) == found


def test_roles_do_not_idle_while_one_without_marks_waits_for_a_rank_in_a_lock_of_its_own() -> None:
    """Trainers wait for an orchestrator that makes no marks, and this for an environment."""
    idle = LATE | PARKED | {"stage": "idle", "collectives": {}}
    trainers = job(2, idle | asked_through_a_queue("orchestrator"), role="train")
    unmarked = UNTOLD | {"progress_age_seconds": None} | asked_through_a_queue("environment")
    orchestrator = job(1, unmarked, role="orchestrator")
    for stack, found in ((IN_A_LOCK, {("environment", 0): "awaited_through"}), ({}, {})):
        environment = job(1, idle | ASLEEP | stack, role="environment")
        assert named([*trainers, *orchestrator, *environment]) == found


def test_a_death_counts_beside_a_peer_that_the_kernel_shows_to_be_waited_for() -> None:
    begins = PARKED | {"stage": "init", "collectives": {}}
    begins |= {"progress_age_seconds": 65.0, "budget_seconds": 60.0}
    orchestrator = job(1, begins | asked_through_a_queue("environment"), role="orchestrator")
    idle = LATE | PARKED | {"stage": "idle", "collectives": {}, "world_size": 2}
    answers = asked_through_a_queue("orchestrator")
    environment = job(2, idle | answers, role="environment", rank_1=GONE)
    assert named([*orchestrator, *environment]) == {("environment", 1): "process_gone"}


def test_weak_evidence_counts_early_once_the_kernel_has_answered_about_all_ranks() -> None:
    early = PARKED | {"progress_age_seconds": 40.0, "budget_seconds": 20.0, "collectives": {}}
    trainers = job(2, early | asked_through_a_queue("rollout"), role="train")
    for waits, found in ((ASLEEP, {("rollout", 0): "awaited_through"}), ({}, {})):
        rollout = job(1, early | waits, role="rollout")
        assert named([*trainers, *rollout]) == found


def asked_through_a_queue(role: str) -> dict[str, Any]:
    """Waits for rank 0 of a role, as the kernel shows it."""
    return {"kernel_waits": (KernelWait("a receive", role, 0, through="broker (pid 7)"),)}


@pytest.mark.parametrize(("late", "doubted"), [(20.0, False), (60.0, True)])
def test_only_the_kernel_can_tell_of_ranks_that_idle_for_long(late: float, doubted: bool) -> None:
    idle = PARKED | {"stage": "idle", "collectives": {}, "stages": frozenset({"rollout"})}
    ages = {"progress_age_seconds": 10.0 + late, "budget_seconds": 10.0}
    (found,) = judge(job(3, idle | ages, role="rollout"))
    assert (found.stalled, found.in_doubt) == (False, doubted)


@pytest.mark.parametrize("answers", [True, False])
def test_the_rank_that_waits_for_nobody_is_named_if_all_others_wait(*, answers: bool) -> None:
    """One decoder waits for its own thread, the other for a queue; the router makes no marks."""
    asks = {"kernel_waits": (KernelWait("a receive", through="broker (pid 7)"),)}
    idle = LATE | PARKED | {"stage": "idle", "collectives": {}}
    stuck = idle | {"stage": "rollout"} | ON_ITSELF
    ranks = job(2, idle | asks, role="decode", rank_1=stuck)
    unmarked = UNTOLD | {"progress_age_seconds": None}
    ranks += job(1, unmarked | (asks if answers else {}), role="router")
    ranks += job(1, idle | asked_through_a_queue("router"), role="prefill")
    assert named(ranks) == ({("decode", 1): "stands_alone"} if answers else {})


def test_a_rank_that_came_back_without_a_mark_is_named_once_the_kernel_was_asked() -> None:
    """Its peers know nothing of its restart, and wait for it in a later collective."""
    back = PARKED | {"progress_age_seconds": None, "collectives": {}, "inside": {}, "stage": None}
    back |= {"started": 500.0, "step": None}
    waits = LATE | inside("world", 220, 4) | {"world_size": 4, "started": 0.0}
    (before,) = judge(job(4, waits, rank_3=back))
    assert (before.stalled, before.in_doubt) == (False, True)
    asked = job(4, waits, rank_3=back | {"kernel_waits": (KernelWait(""),)})
    assert named(asked) == {("train", 3): "awaited"}


def test_ranks_do_not_idle_before_all_of_their_world_have_begun() -> None:
    """They have been in `init`, and wait for whoever was never launched, outside of it."""
    began = LATE | PARKED | {"stage": "idle", "collectives": {}, "stages": frozenset({"init"})}
    here = began | {"world_size": 6, "step": None, "step_age_seconds": None}
    assert named(job(5, here)) == {("train", 5): "not_started"}
    assert named(job(6, here)) == {}
