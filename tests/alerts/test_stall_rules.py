"""The recording rules against `inspect`: hundreds of made-up jobs, judged by both."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from stagewatch.ranks.records import StageTotals, parse
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import BUCKET_BOUNDS, BUCKETS
from stagewatch.verdict.budget import FACTOR, MIN_SECONDS, PATIENCE_SECONDS, budget_seconds
from stagewatch.verdict.facts import RankFacts
from stagewatch.verdict.verdict import judge
from tests.alerts.promtool import Series, evaluate, needs_promtool, series
from tests.records import real_record
from tests.verdict.jobs import HEALTHY, job

pytestmark = needs_promtool

JOBS = 150
CLASSES = [WaitClass.SPIN, WaitClass.SPIN, WaitClass.PARKED, WaitClass.IO, WaitClass.STOPPED]
CLASSES += [WaitClass.UNKNOWN, WaitClass.COMPUTE, WaitClass.TRACED]
BUDGETS = {"train": FACTOR * 0.99 * 4, "cleanup": MIN_SECONDS, "idle": MIN_SECONDS}
BUDGETS |= PATIENCE_SECONDS
"""Of `train` the gaps are known, all up to four seconds."""


def made_up_job(job_id: str, chance: random.Random) -> list[RankFacts]:
    """One or two roles of ranks that are mostly alike, with a few that are not."""
    ranks: list[RankFacts] = []
    for role in chance.choice([("train",), ("train",), ("train", "rollout")]):
        common = {
            "wait_class": chance.choice(CLASSES),
            "progress_age_seconds": chance.choice([2.0, 412.0, 412.0, 412.0, 2000.0]),
            "step": chance.choice([None, 220, 220]),
            "stage": chance.choice(["train"] * 9 + ["idle"]),
        }
        special = {
            f"rank_{rank}": a_difference(chance) for rank in range(8) if chance.random() < 0.2
        }
        ranks += job(chance.randint(1, 8), common, role=role, job_id=job_id, **special)
    return [with_budget(rank) for rank in ranks]


def a_difference(chance: random.Random) -> dict[str, Any]:
    differences: list[dict[str, Any]] = [
        {"wait_class": chance.choice(CLASSES)},
        {"wait_class": WaitClass.IO},
        {"wait_class": WaitClass.PARKED, "stage": "cleanup"},
        {"wait_class": WaitClass.PARKED, "step": chance.choice([219, 221])},
        {"wait_class": WaitClass.GONE},
        {"collectives": {"world": chance.choice([219, 221])}},
        {"collectives": {"world": 220, "tensor": 3}},
        {"stage": chance.choice(["cleanup", "checkpoint", "init", "eval"])},
        {"progress_age_seconds": chance.choice([None, 2.0, 412.0, 1200.0])},
        {"step": None},
    ]
    return chance.choice(differences) | (
        chance.choice(differences) if chance.random() < 0.3 else {}
    )


def with_budget(rank: RankFacts) -> RankFacts:
    stage = rank.stage or ""
    changes = {"budget_seconds": BUDGETS[stage], "armed": stage == "train"}
    return RankFacts(**{name: getattr(rank, name) for name in HEALTHY.__slots__} | changes)


def exported(ranks: list[RankFacts]) -> Series:
    """What node agents would export of these ranks."""
    out = Series()
    for rank in ranks:
        node = f"n{rank.rank % 3}"
        key = {"cluster": "c", "node": node, "job_id": rank.job_id, "role": rank.role}
        mine = {**key, "rank": rank.rank}
        gone = rank.wait_class is WaitClass.GONE
        out.add("rl_rank_up", 0 if gone else 1, **mine)
        out.add("rl_rank_info", 1, **mine, pid=rank.pid)
        out.add("rl_rank_step", rank.step, **mine)
        out.add("rl_rank_progress_age_seconds", rank.progress_age_seconds, **mine)
        out.add("rl_rank_stage_open_seconds", rank.stage_open_seconds, **mine, stage=rank.stage)
        out.add("rl_rank_wait_class", 1, **mine, **{"class": rank.wait_class.value})
        for group, sequence in rank.collectives.items():
            out.add("rl_rank_collective_seq", sequence, **mine, group=group)
        teach = {**key, "node": "n0", "stage": "train"}
        for bound in ("4.0", "+Inf"):
            out.add("rl_progress_gap_seconds_bucket", 90, **teach, le=bound)
        out.add("rl_progress_gap_seconds_count", 90, **teach)
    return out


def test_the_rules_name_whom_inspect_names(tmp_path: Path) -> None:
    chance = random.Random(540)
    ranks = [rank for number in range(JOBS) for rank in made_up_job(f"j{number}", chance)]
    verdicts = judge(ranks)
    named: dict[str, float] = {}
    group_only: dict[str, float] = {}
    active: dict[str, float] = {}
    for verdict in verdicts:
        key = {"cluster": "c", "job_id": verdict.job_id, "role": verdict.role}
        if verdict.stalled:
            active[series("", **key)] = 1
        if verdict.evidence == "group_only":
            group_only[series("job:rl_stall:group_only", **key)] = 1
        for rank in verdict.culprits:
            labels = {**key, "node": f"n{rank.rank % 3}", "rank": rank.rank, "pid": rank.pid}
            named[series("", **labels, stage=rank.stage)] = 1
    evidence = {verdict.evidence for verdict in verdicts}
    assert evidence >= {
        "",
        "group_only",
        "process_gone",
        "collective_behind",
        "left_loop_early",
        "odd_one_out",
        "io_blocked",
    }
    evaluate(
        tmp_path,
        "stalls.rules.yaml",
        exported(ranks),
        {
            "max without (evidence) (job:rl_stall:culprit)": named,
            "job:rl_stall:group_only": group_only,
            "job:rl_stall:active ^ 0": active,
        },
    )


def test_the_rules_see_the_evidence_that_inspect_sees(tmp_path: Path) -> None:
    """Of single culprits: the rules look at each by itself, `inspect` at all of them at once."""
    chance = random.Random(541)
    jobs = [made_up_job(f"j{number}", chance) for number in range(JOBS)]
    ranks: list[RankFacts] = []
    expected: dict[str, float] = {}
    for one in jobs:
        verdicts = judge(one)
        if any(len(verdict.culprits) > 1 for verdict in verdicts):
            continue
        ranks += one
        for verdict in verdicts:
            for rank in verdict.culprits:
                labels = {"job_id": rank.job_id, "role": rank.role, "rank": rank.rank}
                expected[series("", **labels, evidence=verdict.evidence)] = 1
    assert len(expected) > 30
    expression = "max by (job_id, role, rank, evidence) (job:rl_stall:culprit)"
    evaluate(tmp_path, "stalls.rules.yaml", exported(ranks), {expression: expected})


def test_the_rules_and_inspect_learn_the_same_budget(tmp_path: Path) -> None:
    directory = tmp_path / "ranks"
    directory.mkdir()
    record = parse(real_record(directory))
    chance = random.Random(542)
    given = Series()
    expected: dict[str, float] = {}
    for number in range(60):
        stage = chance.choice(["train", "rollout", "checkpoint", "eval", "init"])
        filled = chance.sample(range(BUCKETS), chance.randint(1, 6))
        counts = tuple(chance.randint(1, 50) if k in filled else 0 for k in range(BUCKETS))
        totals = StageTotals((0,) * BUCKETS, 0.0, counts, 0.0)
        taught = type(record)(
            **{name: getattr(record, name) for name in record.__slots__}
            | {"totals": {stage: totals}}
        )
        budget, armed = budget_seconds(taught, stage)
        key = {"cluster": "c", "job_id": f"j{number}", "role": "train", "stage": stage}
        if armed:
            rounded = round(budget * 1000 + 1e-9)
            expected[series("", **key)] = rounded
        given.add("rl_rank_up", 1, cluster="c", job_id=f"j{number}", role="train", rank=0)
        for k in range(BUCKETS):
            bound = repr(BUCKET_BOUNDS[k]) if k < len(BUCKET_BOUNDS) else "+Inf"
            given.add("rl_progress_gap_seconds_bucket", sum(counts[: k + 1]), **key, le=bound)
        given.add("rl_progress_gap_seconds_count", sum(counts), **key)
    assert len(expected) > 40
    expression = "round(job_role_stage:rl_stall_budget:seconds * 1000)"
    evaluate(tmp_path, "stalls.rules.yaml", given, {expression: expected})


@pytest.mark.parametrize("armed", [0, 1, 2, 3])
def test_half_of_the_ranks_must_be_overdue_against_a_learnt_budget(
    armed: int, tmp_path: Path
) -> None:
    late = {"progress_age_seconds": 412.0, "wait_class": WaitClass.SPIN}
    special = {f"rank_{rank}": {"stage": "cleanup"} for rank in range(armed, 4)}
    ranks = [with_budget(rank) for rank in job(4, late, **special)]
    (verdict,) = judge(ranks)
    assert verdict.stalled is (armed >= 2)
    expected = {series("", cluster="c", job_id="540", role="train"): 1} if armed >= 2 else {}
    evaluate(tmp_path, "stalls.rules.yaml", exported(ranks), {"job:rl_stall:active ^ 0": expected})
