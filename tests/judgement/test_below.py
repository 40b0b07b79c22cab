"""Whom others wait for by what libraries below the program tell, and who is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stagewatch.judgement.below import WITNESSES
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.headline import findings_of
from stagewatch.judgement.judge import Verdict, judge
from stagewatch.judgement.sentence import sentence
from stagewatch.judgement.wait_words import label, wait_sentence
from stagewatch.judgement.waits import waits_of
from stagewatch.ranks.nccl.layout import FLIGHT_RECORDER, PLUGIN, RAS, Communicator
from tests.judgement.cases import CASES
from tests.judgement.jobs import PARKED, SPINNING, job

BEGUN, LATE = ("begun", 220), ("idle", 219)
UNTOLD = PARKED | {"collectives": {}}
"""Of a program that tells nothing of its collectives."""


def shown(
    ranks: list[RankFacts],
    witness: str = FLIGHT_RECORDER,
    group: str = "world",
    **differs: tuple[str, int] | None,
) -> list[RankFacts]:
    """The ranks as a witness shows them, too: all have begun all_reduce 220 of a group, but for
    those of which something else is told (`rank_5=LATE`), or nothing."""

    def one(rank: RankFacts) -> tuple[Communicator, ...]:
        told = differs.get(f"rank_{rank.rank}", BEGUN)
        if told is None:
            return ()
        state, sequence = told
        what = rank.rank, len(ranks), "all_reduce", sequence, 0, state
        return (Communicator(group, group, *what, witness=witness),)

    return [replace(rank, nccl=rank.nccl + one(rank)) for rank in ranks]


def verdict_on(ranks: list[RankFacts]) -> Verdict:
    (verdict,) = judge(ranks)
    assert verdict.stalled
    return verdict


def named(verdict: Verdict) -> list[tuple[int, str, str]]:
    return [(one.rank.rank, one.evidence, one.group) for one in verdict.charges]


def told(verdict: Verdict) -> list[str]:
    return [wait_sentence(wait, roles=False) for wait in waits_of([verdict])]


@pytest.mark.parametrize("witness", WITNESSES)
@pytest.mark.parametrize("program", [SPINNING, UNTOLD])
def test_a_rank_that_has_not_launched_what_the_others_have_is_named(
    program: dict[str, Any], witness: str
) -> None:
    verdict = verdict_on(shown(job(8, program), witness, rank_5=LATE))
    assert named(verdict) == [(5, "not_launched", "world")]


def test_a_program_that_says_something_else_is_told() -> None:
    assert told(verdict_on(shown(job(8, SPINNING), rank_5=LATE))) == [
        "7 ranks (0-4, 6-7) wait in all_reduce 220 of world for rank 5, which has not launched it "
        "(PyTorch's flight recorder), though by its program it is in it"
    ]


def test_a_rank_whose_program_has_not_counted_what_a_library_shows_is_told_with_both() -> None:
    late = PARKED | {"collectives": {"world": 219}}
    verdict = verdict_on(shown(job(8, SPINNING, rank_5=late), PLUGIN))
    assert named(verdict) == [(5, "awaited", "world")]
    assert told(verdict) == [
        "7 ranks (0-4, 6-7) wait in all_reduce 220 of world for rank 5, which has entered 219; "
        "NCCL's profiler plugin shows rank 5 in it, too"
    ]


def test_a_wait_that_two_libraries_show_is_told_once_by_the_more_exact() -> None:
    ranks = shown(job(8, SPINNING), RAS, "0xae94", rank_5=LATE)
    verdict = verdict_on(shown(ranks, PLUGIN, rank_5=LATE))
    (wait,) = told(verdict)
    assert "(NCCL's profiler plugin)" in wait


def test_a_kernel_that_has_begun_on_all_but_one_waits_for_that_one() -> None:
    verdict = verdict_on(shown(job(8, SPINNING), rank_5=("launched", 220)))
    assert named(verdict) == [(5, "not_begun", "world")]
    assert "for rank 5, whose GPU has not begun it" in told(verdict)[0]


@pytest.mark.parametrize(
    "differs",
    [
        {},
        {f"rank_{rank}": ("launched", 220) for rank in range(8)},
        {"rank_5": LATE, "rank_6": None},  # somebody else may be later
        {"rank_0": ("idle", 221)},  # a root that is done
    ],
)
def test_where_no_library_shows_a_difference_nobody_is_named(differs: dict[str, Any]) -> None:
    verdict = verdict_on(shown(job(8, SPINNING), **differs))
    assert (verdict.charges, verdict.evidence) == ((), "group_only")


def test_who_is_behind_because_it_waits_in_another_group_is_innocent() -> None:
    """Ranks 0 to 2 wait for 3 in dp, which waits for 4 in pp; 4 has entered neither."""
    nobody = {f"rank_{rank}": None for rank in range(8)}
    ranks = shown(job(8, UNTOLD), group="dp", rank_3=("idle", 219), rank_4=("idle", 219))
    pair = shown(ranks, **nobody | {"rank_3": ("begun", 31), "rank_4": ("idle", 30)}, group="pp")
    ranks = [
        replace(
            rank,
            nccl=tuple(replace(one, members=2) if one.id == "pp" else one for one in rank.nccl),
        )
        for rank in pair
    ]
    assert [one[:2] for one in named(verdict_on(ranks))] == [(4, "not_launched")]


def test_a_proxy_that_waits_for_bytes_is_told_with_the_device() -> None:
    ranks = CASES["the-network-loses-what-one-sends"].ranks("540")
    found = judge(ranks)
    waits = told(found[0])
    assert "all_reduce 220 (rank 4's proxy waits for its bytes over mlx5_2) of world" in (
        sentence(found[0])
    )
    assert (
        "rank 4's proxy waits in all_reduce 220 of world for bytes of rank 3 over mlx5_2 "
        "(NCCL's profiler plugin)"
    ) in waits
    (finding,) = findings_of(found, ranks)
    assert "rank 3 does not exchange the bytes that the others wait for" in finding.headline
    assert all(label(wait)[1] for wait in waits_of(found))
