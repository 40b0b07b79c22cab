"""Whom others wait for by what PyTorch's flight recorder and NCCL's RAS tell, and who is named."""

from __future__ import annotations

from typing import Any

import pytest

from stagewatch.judgement.facts import LibraryCall
from stagewatch.judgement.judge import Verdict, judge
from stagewatch.judgement.wait_words import said
from stagewatch.judgement.waits import waits_of
from tests.judgement.jobs import PARKED, SPINNING, job


def recorded(sequence: int, state: str, group: str = "world", op: str = "all_reduce") -> Any:
    return {"library_calls": (LibraryCall("flight_recorder", group, op, sequence, state),)}


def counted(**counts: int) -> Any:
    calls = [LibraryCall("nccl_ras", "0xae94", op, count) for op, count in counts.items()]
    return {"library_calls": tuple(calls)}


def judged(common: dict[str, Any], **special: dict[str, Any]) -> Verdict:
    (verdict,) = judge(job(8, common, **special))
    assert verdict.stalled
    return verdict


def told(verdict: Verdict) -> list[tuple[int, str, str, str]]:
    return [(one.rank.rank, one.evidence, one.group, one.op) for one in verdict.charges]


TOGETHER = SPINNING | recorded(220, "scheduled")
UNTOLD = PARKED | {"collectives": {}}
"""Of a program that tells nothing of its collectives."""


@pytest.mark.parametrize("common", [SPINNING, UNTOLD])
def test_a_rank_that_has_not_enqueued_what_the_others_have_is_named(common: dict[str, Any]) -> None:
    verdict = judged(common | recorded(220, "started"), rank_5=recorded(219, "completed"))
    assert told(verdict) == [(5, "awaited", "world", "all_reduce")]


def test_a_program_that_says_something_else_is_told() -> None:
    verdict = judged(TOGETHER, rank_5=recorded(219, "completed"))
    (wait,) = waits_of([verdict])
    assert said(wait, roles=False) == (
        "7 ranks (0-4, 6-7) wait in all_reduce 220 of world for rank 5, which has not enqueued it, "
        "as PyTorch's flight recorder tells; its program says that it has entered it"
    )


def test_a_kernel_that_has_begun_on_all_but_one_waits_for_that_one() -> None:
    verdict = judged(SPINNING | recorded(220, "started"), rank_5=recorded(220, "scheduled"))
    assert told(verdict) == [(5, "awaited", "world", "all_reduce")]
    (wait,) = waits_of([verdict])
    assert "rank 5, which has not begun it, as PyTorch's flight recorder tells" in said(
        wait, roles=False
    )


def test_counts_of_ras_tell_who_is_behind() -> None:
    common = SPINNING | counted(AllReduce=812, AllGather=7)
    verdict = judged(common, rank_2=counted(AllReduce=811, AllGather=7))
    assert told(verdict) == [(2, "awaited", "0xae94", "AllReduce")]


@pytest.mark.parametrize(
    "special",
    [
        {},
        {"rank_5": recorded(220, "started")},  # begun on one alone
        {f"rank_{rank}": recorded(220, "started") for rank in range(4)},  # neither side is few
        {"rank_5": {"library_calls": ()}},
        {"rank_5": recorded(3, "scheduled", group="another")},
    ],
)
def test_where_all_have_enqueued_the_same_nobody_is_named(special: dict[str, Any]) -> None:
    verdict = judged(TOGETHER, **special)
    assert (verdict.charges, verdict.evidence) == ((), "group_only")


def test_who_is_behind_because_it_waits_in_another_group_is_innocent() -> None:
    """Ranks 0 to 3 wait for 3 in dp, which waits for 4 in pp; 4 has entered neither."""
    in_pp = {"library_calls": (*recorded(9, "completed", "dp")["library_calls"],)}
    in_pp["library_calls"] += recorded(31, "started", "pp", "send")["library_calls"]
    late = {"library_calls": recorded(30, "completed", "pp", "send")["library_calls"]}
    waits = UNTOLD | recorded(10, "started", "dp")
    verdict = judged(waits, rank_3=in_pp, rank_4=late)
    assert told(verdict) == [(4, "awaited", "pp", "send")]


def test_a_rank_that_was_far_ahead_and_is_done_waits_for_nobody() -> None:
    """The root of a broadcast is done before the others have come."""
    verdict = judged(TOGETHER, rank_0=recorded(221, "completed", op="broadcast"))
    assert verdict.charges == ()
