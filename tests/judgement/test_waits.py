"""Who waits for whom, as it is told to people."""

from __future__ import annotations

import pytest

from stagewatch.judgement.judge import judge
from stagewatch.judgement.wait_words import wait_sentence
from stagewatch.judgement.waits import key, waits_of
from tests.judgement.cases import CASES, ROLES, ranks_of


def sentences(name: str) -> list[str]:
    """The waits of a job by its name."""
    verdicts = judge(CASES[name].ranks("540") if name in CASES else ranks_of(name))
    return [wait_sentence(wait, roles=len(verdicts) > 1) for wait in waits_of(verdicts)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "one-has-not-come",
            "7 ranks (0-4, 6-7) wait in all_reduce 220 of world for rank 5, which has entered 219",
        ),
        (
            "never-came-to-the-making-of-groups",
            "ranks 0, 1, 3 wait in init_process_group 1 of init for rank 2, which has entered none",
        ),
        (
            "another-size",
            "7 ranks (0-2, 4-7) are in all_reduce 220 of world with 512 elements, but rank 3 is in "
            "all_reduce 220 of world with 511 elements",
        ),
        (
            "another-operation-of-two",
            "rank 0 is in all_reduce 220 of world, but rank 1 is in barrier 220 of world; nobody "
            "can tell which side is wrong",
        ),
        (
            "one-has-left-a-backward-pass-that-most-are-in",
            "ranks 0, 1, 3 are still in backward 29 of ddp:world, which rank 2 has left for "
            "all_gather 29 of world",
        ),
        ("a-receive-that-nobody-sends", "rank 0 receives from rank 1, which sends to nobody"),
        (
            "one-left-that-was-to-be-sent-to",
            "rank 0 waits in a send for rank 1, which left 1 min ago",
        ),
        (
            "members-missing",
            "6 ranks (0-5) wait in all_reduce 220 of world for 2 unseen members (6, 7)",
        ),
        ("all-in-calls", "ranks 0, 1, 2, 3 are inside calls of search, for up to 6 min 40 s"),
        (
            "in-a-stage-of-its-own",
            "7 ranks (0-4, 6-7) stand still and may wait for rank 5; no evidence shows why",
        ),
        (
            "all-of-a-group-of-two-roles-but-one-of-two-have-come",
            "rank 1 of rollout and ranks 0, 1 of train wait in broadcast 9 of sync for rank 0 of "
            "rollout, which has entered 8",
        ),
        (
            "a-role-that-has-died-is-missed",
            "rank 0 of train waits in broadcast 1 of weights for ranks 0, 1 of rollout, which have "
            "died",
        ),
    ],
)
def test_a_wait_is_told_with_its_witness(name: str, expected: str) -> None:
    assert expected in sentences(name)


def test_a_circle_is_told_from_both_sides() -> None:
    assert sentences("half-have-left-out-what-the-others-wait-in") == [
        "ranks 0, 1 wait in reduce_scatter 27 of experts for ranks 2, 3, which have entered 26",
        "ranks 2, 3 wait in all_reduce 27 of world for ranks 0, 1, which have entered 26",
    ]


def test_where_somebody_is_named_all_that_stand_still_are_told_to_wait() -> None:
    for name in (*CASES, *ROLES):
        verdicts = judge(CASES[name].ranks("540") if name in CASES else ranks_of(name))
        waiting = {key(rank) for wait in waits_of(verdicts) for rank in wait.waiters}
        named = {key(rank) for verdict in verdicts for rank in verdict.culprits}
        for verdict in (each for each in verdicts if each.charges):
            still = {key(rank) for rank in verdict.case.live if rank.overdue}
            assert still <= waiting | named, name
