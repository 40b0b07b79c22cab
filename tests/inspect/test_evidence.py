"""Stacks for `inspect --evidence`: whose are taken, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable

from stagewatch.inspect import evidence
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.judge import judge
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.model import Rank
from stagewatch.ranks.stacks import Frame, StackTaker, Take
from stagewatch.ranks.wait_class import WaitClass
from tests.judgement.cases import stands
from tests.judgement.jobs import HEALTHY, PARKED, SPINNING, job

LEFT = PARKED | {"stage": "cleanup", "step": 219, "collectives": {"world": 219}}


class Taker(StackTaker):
    """Finds rank 3 in a reward function and all others in a collective, without any process."""

    def __init__(self, problem: str = "") -> None:
        self.asked: list[int] = []
        self._problem = problem

    def take(self, ranks: Iterable[Rank]) -> dict[int, Take]:
        ranks = list(ranks)
        self.asked = [rank.rank for rank in ranks]
        if self._problem:
            return {rank.pid: Take(problem=self._problem) for rank in ranks}
        return {
            rank.pid: Take((("Main\nThread", (Frame(_place(rank), "/x/run.py", 7),)),))
            for rank in ranks
            if rank.pid
        }


def _place(rank: Rank) -> str:
    return "length_reward" if rank.rank == 3 else "all_reduce"


def gather(facts: list[RankFacts], taker: Taker) -> list[RankFacts]:
    ranks = [
        Rank(fact.job_id, fact.role, fact.rank, fact.pid)
        for fact in facts
        if fact.wait_class is not WaitClass.GONE
    ]
    return evidence.gather(ranks, facts, judge(facts), taker, sleep=lambda seconds: None)


def shown(facts: list[RankFacts]) -> str:
    return evidence.text(facts, judge(facts))


def test_all_ranks_of_the_job_are_looked_at_and_the_suspect_comes_first() -> None:
    taker = Taker()
    facts = gather(job(8, SPINNING, rank_3=LEFT), taker)
    assert taker.asked == list(range(8))
    suspect, majority = shown(facts).split("\n\n")
    assert suspect.startswith("\njob 540 rank 3 (train), pid 4003, suspect:\n  thread Main?Thread")
    assert "    length_reward (run.py:7)" in suspect
    assert majority.startswith("job 540 ranks 0, 1, 2, 4 and 3 more (train), pid 4000, majority:")


def test_the_call_that_a_stack_is_in_is_named() -> None:
    class Gets(Taker):
        def take(self, ranks: Iterable[Rank]) -> dict[int, Take]:
            get = Frame("get", "/usr/lib/python3.11/multiprocessing/queues.py", 103)
            frames = (get, Frame("train", "/x/run.py", 7))
            return {rank.pid: Take((("MainThread", frames),)) for rank in ranks if rank.pid}

    told = shown(gather(job(8, SPINNING, rank_3=LEFT), Gets()))
    assert "thread MainThread, in multiprocessing.Queue.get" in told


def test_programs_learn_of_every_rank_who_is_a_suspect() -> None:
    facts = gather(job(8, SPINNING, rank_3=LEFT), Taker())
    told = evidence.as_json(facts, judge(facts))
    assert {one["rank"] for one in told if one["why"] == "suspect"} == {3}
    assert told[0]["frame"] == "run.py:7 in length_reward"
    assert len({one["group"] for one in told}) == 2


def test_a_stack_may_name_who_nothing_else_names() -> None:
    ranks = job(8, PARKED | {"collectives": {}})
    assert [verdict.evidence for verdict in judge(ranks)] == ["group_only"]
    (verdict,) = judge(gather(ranks, Taker()))
    assert [rank.rank for rank in verdict.culprits] == [3]
    assert (
        "at run.py:7 in length_reward; it is at a different place in the code from all others"
        in sentence(verdict)
    )


def test_where_nobody_can_be_named_the_places_are() -> None:
    ranks = job(
        4, PARKED | {"collectives": {}} | stands("a"), rank_1=stands("b"), rank_2=stands("b")
    )
    (verdict,) = judge(ranks)
    assert verdict.culprits == ()
    assert "ranks 0, 3 at a.py:1 in a; ranks 1, 2 at b.py:1 in b" in sentence(verdict)


def test_a_healthy_job_is_not_looked_at() -> None:
    taker = Taker()
    ranks = job(8)
    assert ranks[0] == HEALTHY
    assert gather(ranks, taker) == ranks
    assert taker.asked == []


def test_a_rank_that_is_gone_has_no_stack_and_its_pid_may_be_anybodys() -> None:
    taker = Taker()
    gather(job(8, SPINNING, rank_3={"wait_class": WaitClass.GONE}), taker)
    assert 3 not in taker.asked
