"""Jobs drawn at random: mostly alike ranks, of which a few differ in what a judge looks at."""

from __future__ import annotations

import dataclasses
import random

from stagewatch.judgement.facts import RankFacts
from tests.judgement.cases import (
    COMPUTE,
    GONE,
    IO,
    PARKED,
    POLL,
    SPIN,
    STOPPED,
    TRACED,
    UNKNOWN,
    Differences,
    absent,
    inside,
    member,
    sends,
    stands,
    with_budget,
)
from tests.judgement.jobs import job

JOBS = 60
ALONE: Differences = {"collectives": {}}
CLASSES = [SPIN, SPIN, PARKED, POLL, IO, STOPPED, UNKNOWN, COMPUTE, TRACED]


def made_up_job(job_id: str, chance: random.Random) -> list[RankFacts]:
    """One or two roles of ranks that are mostly alike, with a few that are not."""
    ranks: list[RankFacts] = a_role_that_stands(job_id, chance) if chance.random() < 0.1 else []
    roles = [("train",), ("train",), ("train", "rollout")]
    for role in () if ranks else chance.choice(roles):
        size = chance.randint(1, 8)
        common = chance.choice(CLASSES) | {
            "progress_age_seconds": chance.choice([2.0, 412.0, 412.0, 412.0, 2000.0]),
            "stage": chance.choice(["train"] * 9 + ["idle"]),
            "world_size": size,
        }
        op = chance.choice(["all_reduce", "unknown"])
        common |= chance.choice([ALONE, inside("world", 220, size, op), inside("tp", 220, size)])
        special = {
            f"rank_{rank}": a_difference(chance, size)
            for rank in range(size)
            if chance.random() < 0.25
        }
        ranks += job(size, common, role=role, job_id=job_id, **special)
    return [
        with_budget(
            rank if rank.left_seconds is None else dataclasses.replace(rank, **GONE, calls={})
        )
        for rank in ranks
    ]


def a_role_that_stands(job_id: str, chance: random.Random) -> list[RankFacts]:
    """A role in a stage as a whole beside one that waits, but for a rank here and there."""
    size, many = chance.randint(1, 3), chance.randint(2, 4)
    shared = ("tp", 220, chance.choice([0, size + 1]))
    rest = chance.choice([member(("world", 219, many)) | PARKED, inside(*shared), member(shared)])
    waiting = inside("world", 220, many) | {"world_size": many} | SPIN
    standing = PARKED | chance.choice([ALONE, member(("tp", 219, shared[2])), member(shared)])
    marks: Differences = {"progress_age_seconds": 2.0, "step_age_seconds": 412.0} | COMPUTE
    marks = chance.choice([{}, {}, marks])
    roles = {
        "train": (many, waiting, {"rank_0": rest | {"stage": chance.choice(["idle", "train"])}}),
        "rollout": (size, standing | {"stage": "rollout", "world_size": size} | marks, {}),
    }
    return [
        dataclasses.replace(rank, **(a_difference(chance, size) if chance.random() < 0.1 else {}))
        for role, (count, common, special) in roles.items()
        for rank in job(
            count, {"progress_age_seconds": 412.0} | common, role=role, job_id=job_id, **special
        )
    ]


def a_difference(chance: random.Random, size: int) -> Differences:
    count = chance.choice([219, 220, 221])
    other = chance.choice(["world", "tp", "dp"])
    differences: list[Differences] = [
        chance.choice(CLASSES),
        IO,
        PARKED | {"stage": "cleanup"},
        PARKED,
        GONE,
        absent(chance.choice([20.0, 60.0])),
        member(("world", count, size)),
        member(("world", count, size), ("tp", 3, 2)),
        inside("world", count, size),
        inside(other, count, chance.choice([0, size, size + 1, 2]), "barrier", None, ("x", 1, 0)),
        inside("world", 220, size, "barrier"),
        inside("world", 219, size, chance.choice(["broadcast", "reduce", "barrier"])),
        inside("world", 220, size, "all_reduce", chance.choice([8, 9])),
        sends("recv", chance.randrange(8)),
        {"stage": chance.choice(["cleanup", "checkpoint", "init", "eval"])},
        {"stage": "reward"},
        {"progress_age_seconds": chance.choice([None, 2.0, 412.0, 1200.0])},
        {"progress_age_seconds": 2.0, "step_age_seconds": chance.choice([20.0, 60.0])},
        {"started": 1000.0},
        {"expected_seconds": 5.0},
        {"at_work": True, "progress_age_seconds": chance.choice([412.0, 45.0])},
        {"step": chance.choice([None, 219, 221])},
        member(("world", 219, size)) | {"step": 221} | sends("recv", chance.randrange(8)),
        member(("world", 219, size)) | chance.choice([PARKED, POLL]) | {"stage": "idle"},
        {"calls": {"search": chance.choice([9.0, 400.0]), "reward": 40.0}},
    ]
    return chance.choice(differences) | (
        chance.choice(differences) if chance.random() < 0.3 else {}
    )


def made_up_jobs(seed: int) -> list[RankFacts]:
    chance, looks = random.Random(seed), random.Random(-seed)
    jobs = [made_up_job(f"j{number}", chance) for number in range(JOBS)]
    return [rank for ranks in jobs for rank in looked_at(ranks, looks)]


def looked_at(ranks: list[RankFacts], chance: random.Random) -> list[RankFacts]:
    """With the stacks of some jobs, most of them alike."""
    if chance.random() < 0.4:
        return ranks
    odd = [{}, stands("b"), stands("c"), stands("b", still=False)]
    return [
        dataclasses.replace(rank, **(chance.choice(odd) if chance.random() < 0.2 else stands("a")))
        for rank in ranks
    ]
