"""The verdict where a stall has an excuse or has outlived it, or where two signs meet in a rank."""

from __future__ import annotations

from typing import Any

import pytest

from stagewatch.gpu.device_state import Device
from stagewatch.judgement.facts import Inside
from stagewatch.judgement.judge import judge
from stagewatch.judgement.limits import WORKING_SECONDS
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.wait_class import WaitClass
from tests.judgement.jobs import LEFT, PARKED, SPINNING, job

OVERDUE: dict[str, Any] = {"progress_age_seconds": 412.0}
BEHIND: dict[str, Any] = OVERDUE | {"collectives": {"world": 219}, "inside": {}}


def test_a_rank_held_by_a_debugger_excuses_all_that_wait_for_it() -> None:
    (found,) = judge(job(8, SPINNING, rank_2=OVERDUE | {"wait_class": WaitClass.TRACED}))
    assert (found.stalled, found.evidence) == (False, "")
    assert "a debugger holds rank 2 (pid 4002)" in sentence(found)


@pytest.mark.parametrize(
    ("seconds", "stalled"), [(WORKING_SECONDS - 1, False), (WORKING_SECONDS + 1, True)]
)
def test_work_is_an_excuse_for_a_while_of_who_is_waited_for(seconds: float, stalled: bool) -> None:
    working = {"wait_class": WaitClass.COMPUTE, "at_work": True}
    age = {"progress_age_seconds": 15.0 + seconds}
    late = BEHIND | working | age
    (found,) = judge(job(8, SPINNING | age, rank_2=late))
    assert found.stalled is stalled
    (found,) = judge(job(8, SPINNING | age | working, rank_2=late | {"at_work": False}))
    assert [rank.rank for rank in found.culprits] == [2]


def test_a_checkpoint_beyond_its_time_excuses_no_other_role() -> None:
    hung = {"stage": "checkpoint", "progress_age_seconds": 1000.0, "budget_seconds": 900.0}
    waiting, trainers = job(4, PARKED, role="rollout"), job(8, PARKED | hung)
    assert [found.stalled for found in judge(waiting + trainers)] == [True, True]


def test_ranks_that_are_idle_wait_for_the_driver_that_died() -> None:
    idle = job(4, PARKED | {"stage": "idle"})
    (found,) = judge(idle)
    assert (found.stalled, found.evidence) == (False, "")
    driver = job(1, {"wait_class": WaitClass.GONE, "progress_age_seconds": None}, role="driver")
    charges = [charge for found in judge(idle + driver) for charge in found.charges]
    assert [(one.rank.role, one.evidence) for one in charges] == [("driver", "process_gone")]


@pytest.mark.parametrize(
    ("wait_classes", "evidence", "named"),
    [
        ([WaitClass.IO, WaitClass.IO], "io_blocked", [2, 5]),
        ([WaitClass.SPIN, WaitClass.STOPPED], "odd_one_out", [5]),
        ([WaitClass.SPIN, WaitClass.PARKED], "awaited", [5]),
        ([WaitClass.COMPUTE, WaitClass.PARKED], "awaited", [2, 5]),
    ],
)
def test_how_ranks_that_are_behind_wait_tells_more_than_that_they_are(
    wait_classes: list[WaitClass], evidence: str, named: list[int]
) -> None:
    """One that waits for storage or is stopped is the cause; its peer, behind too, waits for it, as
    does one that spins as all those do that are inside."""
    first, second = (BEHIND | {"wait_class": wait_class} for wait_class in wait_classes)
    (found,) = judge(job(8, SPINNING, rank_2=first, rank_5=second))
    assert (found.evidence, [rank.rank for rank in found.culprits]) == (evidence, named)


STANDS: dict[str, Any] = {"wait_class": WaitClass.PARKED, "inside": {}}
LATE = {"progress_age_seconds": 1215.0}  # twenty minutes beyond the budget


@pytest.mark.parametrize(
    ("device", "late", "stalled"),
    [
        (Device.WORKS, 1200.0, False),
        (Device.WORKS, 1801.0, True),  # as an evaluation that is declared
        (Device.SPINS, 1200.0, True),
        (None, 1200.0, True),
    ],
)
def test_a_gpu_that_computes_excuses_its_rank(
    device: Device | None, late: float, stalled: bool
) -> None:
    """An evaluation that nobody has declared, of which no rank makes a mark."""
    (found,) = judge(job(4, STANDS | {"device": device, "progress_age_seconds": 15.0 + late}))
    assert found.stalled is stalled
    assert found.excuse is None if stalled else found.excuse and found.excuse.kind == "computing"


def test_a_gpu_that_computes_excuses_its_rank_whatever_it_has_launched_before() -> None:
    (found,) = judge(job(4, SPINNING | LATE | {"device": Device.WORKS}))
    assert not found.stalled


def test_a_gpu_that_computes_excuses_nobody_else() -> None:
    """The others' compute what they have launched besides; rank 2 has not come."""
    works = {"device": Device.WORKS}
    (found,) = judge(
        job(8, SPINNING | LATE | works, rank_2=BEHIND | LATE | {"device": Device.IDLE})
    )
    assert [rank.rank for rank in found.culprits] == [2]
    (found,) = judge(job(8, SPINNING | LATE, rank_2=BEHIND | LATE | works))
    assert not found.stalled


TOGETHER = SPINNING | {"device": Device.SPINS}


def test_of_ranks_in_one_collective_the_few_with_an_idle_gpu_are_named() -> None:
    (found,) = judge(job(8, TOGETHER, rank_5={"device": Device.IDLE}))
    (charge,) = found.charges
    assert (charge.rank.rank, charge.evidence, charge.confidence) == (5, "device_idle", "likely")
    assert (charge.group, charge.op) == ("world", "all_reduce")
    assert "rank 5 (pid 4005) seems to hold up the job" in sentence(found)
    assert "its GPU runs no kernel of it; the other GPUs wait in theirs" in sentence(found)


@pytest.mark.parametrize(
    "special",
    [
        {},  # all spin: the transport
        {f"rank_{rank}": {"device": Device.IDLE} for rank in range(4)},  # no side is the majority
        {"rank_5": {"device": Device.IDLE}, "rank_6": {"device": None}},  # not all are seen
    ],
)
def test_where_gpus_do_not_tell_them_apart_nobody_is_named(special: dict[str, Any]) -> None:
    (found,) = judge(job(8, TOGETHER, **special))
    assert (found.stalled, found.charges, found.evidence) == (True, (), "group_only")


def test_a_rank_that_has_lost_its_gpu_is_named() -> None:
    (found,) = judge(job(8, TOGETHER, rank_1={"device": Device.LOST}))
    assert [(c.rank.rank, c.evidence, c.confidence) for c in found.charges] == [
        (1, "device_lost", "sure")
    ]


def test_a_rank_between_two_stages_gives_way_to_one_that_has_not_come_from_its_stage() -> None:
    ranks = job(8, SPINNING, rank_2=LEFT | {"stage": "train"}, rank_5=LEFT | {"stage": "idle"})
    (found,) = judge(ranks)
    assert [(charge.rank.rank, charge.evidence) for charge in found.charges] == [(2, "awaited")]


def test_the_only_one_of_its_role_in_a_group_waits_as_the_others_do_that_have_all_come() -> None:
    inside = {
        "collectives": {"weights": 9, "world": 219},
        "group_sizes": {"weights": 3},
        "inside": {"weights": Inside("broadcast", 410.0)},
    }
    engines = job(2, SPINNING | inside | {"collectives": {"weights": 9}}, role="rollout")
    found = judge(job(4, SPINNING, rank_0=inside) + engines)
    assert {verdict.role: verdict.evidence for verdict in found} == {
        "train": "group_only",
        "rollout": "group_only",
    }
