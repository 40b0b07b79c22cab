"""The recording rules and `inspect` judge the same ranks: by a table, at each threshold, at random.

The two hold their thresholds apart, in PromQL and in Python: cases just under and just over each
show that they mean the same.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from stagewatch.ranks.records import StageTotals, parse
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import BUCKET_BOUNDS, BUCKETS
from stagewatch.verdict.facts import RankFacts
from stagewatch.verdict.judge import Verdict, failed, judge
from stagewatch.verdict.thresholds import (
    FACTOR,
    MIN_GAPS,
    MIN_SECONDS,
    PATIENCE_SECONDS,
    budget_seconds,
)
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


LATE: dict[str, Any] = {"progress_age_seconds": 412.0, "wait_class": WaitClass.SPIN}
BEHIND = {"collectives": {"world": 219}}
IO, STOPPED, PARKED = (
    {"wait_class": wait_class} for wait_class in (WaitClass.IO, WaitClass.STOPPED, WaitClass.PARKED)
)
COMPUTING = {"wait_class": WaitClass.COMPUTE}
UNKNOWN = {"wait_class": WaitClass.UNKNOWN}
TABLE: dict[str, tuple[dict[str, dict[str, Any]], list[int], str]] = {
    "all-spin": ({}, [], "group_only"),
    "one-behind": ({"rank_5": BEHIND}, [5], "collective_behind"),
    "two-behind": ({"rank_2": BEHIND, "rank_5": BEHIND}, [2, 5], "collective_behind"),
    "two-behind-one-in-io": ({"rank_2": BEHIND, "rank_5": BEHIND | IO}, [5], "io_blocked"),
    "parked-behind-one-in-io": (
        {"rank_2": BEHIND | PARKED, "rank_5": BEHIND | IO},
        [5],
        "io_blocked",
    ),
    "two-behind-in-io": ({"rank_2": BEHIND | IO, "rank_5": BEHIND | IO}, [2, 5], "io_blocked"),
    "two-behind-one-stopped": ({"rank_2": BEHIND, "rank_5": BEHIND | STOPPED}, [5], "odd_one_out"),
    "behind-in-io-and-stopped": (
        {"rank_1": BEHIND, "rank_2": BEHIND | IO, "rank_5": BEHIND | STOPPED},
        [5],
        "odd_one_out",
    ),
    "one-behind-one-in-io": ({"rank_2": BEHIND, "rank_5": IO}, [2], "collective_behind"),
    "one-in-io": ({"rank_5": IO}, [5], "io_blocked"),
    "one-in-io-one-stopped": ({"rank_2": IO, "rank_5": STOPPED}, [5], "odd_one_out"),
    "one-in-io-one-parked": ({"rank_2": PARKED, "rank_5": IO}, [5], "io_blocked"),
    "one-parked": ({"rank_5": PARKED}, [5], "odd_one_out"),
    "one-parked-elsewhere": ({"rank_5": PARKED | {"stage": "cleanup"}}, [5], "left_loop_early"),
    "behind-elsewhere": (
        {"rank_5": BEHIND | PARKED | {"stage": "cleanup"}},
        [5],
        "left_loop_early",
    ),
    "one-gone": ({"rank_5": {"wait_class": WaitClass.GONE}}, [5], "process_gone"),
    "gone-beside-one-in-io": (
        {"rank_2": IO, "rank_5": {"wait_class": WaitClass.GONE}},
        [5],
        "process_gone",
    ),
}
"""What makes which ranks of eight differ, who is at fault, and by what evidence."""


def aged(seconds: float, **more: Any) -> dict[str, Any]:
    return {"progress_age_seconds": seconds, **more}


def ranks_with(count: int, difference: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"rank_{rank}": difference for rank in range(count)}


THRESHOLDS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "budget-learnt": (1, {"rank_0": aged(11.8)}, {"rank_0": aged(11.95)}),
    "budget-least": (
        2,
        {"rank_0": aged(9.9, stage="cleanup")},
        {"rank_0": aged(10.1, stage="cleanup")},
    ),
    **{
        f"patience-{stage}": (
            2,
            {"rank_0": aged(seconds - 1, stage=stage)},
            {"rank_0": aged(seconds + 1, stage=stage)},
        )
        for stage, seconds in (("checkpoint", 900), ("init", 1800), ("eval", 1800))
    },
    "computing": (2, {"rank_0": COMPUTING | aged(899)}, {"rank_0": COMPUTING | aged(901)}),
    "half-learnt": (
        4,
        ranks_with(3, {"stage": "cleanup"}),
        ranks_with(2, {"stage": "cleanup"}),
    ),
    "odd-by-class": (6, ranks_with(2, PARKED), ranks_with(3, PARKED)),
    "odd-by-sequence": (6, ranks_with(2, BEHIND), ranks_with(3, BEHIND)),
    "odd-by-sequence-in-io": (6, ranks_with(2, BEHIND | IO), ranks_with(3, BEHIND | IO)),
    "unknown": (
        6,
        ranks_with(2, UNKNOWN) | {"rank_5": IO},
        ranks_with(3, UNKNOWN) | {"rank_5": IO},
    ),
}
"""Jobs on either side of a threshold: how many ranks, and what makes some of them differ."""


def judged_by_both(directory: Path, ranks: list[RankFacts]) -> dict[str, Verdict]:
    """The verdicts of `inspect` by job, after the rules were seen to say the same of all jobs."""
    verdicts = judge(ranks)
    keys = {
        verdict.job_id: {"cluster": "c", "job_id": verdict.job_id, "role": verdict.role}
        for verdict in verdicts
    }
    assert len(keys) == len(verdicts)
    evaluate(
        directory,
        "stalls.rules.yaml",
        exported(ranks),
        {
            "max by (job_id, rank, evidence) (job:rl_stall:culprit)": {
                series("", job_id=rank.job_id, rank=rank.rank, evidence=verdict.evidence): 1
                for verdict in verdicts
                for rank in verdict.culprits
            },
            "job:rl_stall:group_only": {
                series("job:rl_stall:group_only", **keys[verdict.job_id]): 1
                for verdict in verdicts
                if verdict.evidence == "group_only"
            },
            "job:rl_stall:active ^ 0": {
                series("", **keys[verdict.job_id]): 1 for verdict in verdicts if verdict.stalled
            },
        },
    )
    return {verdict.job_id: verdict for verdict in verdicts}


def test_the_rules_and_inspect_name_the_same_ranks_by_the_same_evidence(tmp_path: Path) -> None:
    """Of ranks that are behind, one in I/O or stopped is the cause, and its peers are innocent."""
    ranks = [
        with_budget(rank)
        for name, (special, _, _) in TABLE.items()
        for rank in job(8, LATE, job_id=name, **special)
    ]
    verdicts = judged_by_both(tmp_path, ranks)
    assert {
        name: ([rank.rank for rank in verdict.culprits], verdict.evidence)
        for name, verdict in verdicts.items()
    } == {name: (named, evidence) for name, (_, named, evidence) in TABLE.items()}


def test_the_rules_hold_the_same_numbers(tmp_path: Path) -> None:
    """Each threshold turns the verdict of both, between the same two cases."""
    ranks = [
        with_budget(rank)
        for name, (size, *sides) in THRESHOLDS.items()
        for side, special in zip(("under", "over"), sides, strict=True)
        for rank in job(size, LATE, job_id=f"{name}-{side}", **special)
    ]
    verdicts = judged_by_both(tmp_path, ranks)

    def outcome(job_id: str) -> tuple[bool, int]:
        return verdicts[job_id].stalled, len(verdicts[job_id].culprits)

    same = [name for name in THRESHOLDS if outcome(f"{name}-under") == outcome(f"{name}-over")]
    assert same == []


@pytest.mark.parametrize(("gaps", "learnt"), [(MIN_GAPS - 1, False), (MIN_GAPS, True)])
def test_the_rules_and_inspect_learn_of_as_many_gaps(
    gaps: int, learnt: bool, tmp_path: Path
) -> None:
    directory = tmp_path / "ranks"
    directory.mkdir()
    counts = (gaps, *(0,) * (BUCKETS - 1))
    totals = {"train": StageTotals((0,) * BUCKETS, 0.0, counts, 0.0)}
    taught = dataclasses.replace(parse(real_record(directory)), totals=totals)
    assert budget_seconds(taught, "train") == (MIN_SECONDS, learnt)
    given = Series()
    key = {"cluster": "c", "job_id": "7", "role": "train"}
    given.add("rl_rank_up", 1, **key, rank=0)
    for bound in (repr(BUCKET_BOUNDS[0]), "+Inf"):
        given.add("rl_progress_gap_seconds_bucket", gaps, **key, stage="train", le=bound)
    given.add("rl_progress_gap_seconds_count", gaps, **key, stage="train")
    expected = {series("", **key, stage="train"): MIN_SECONDS} if learnt else {}
    expression = "max without () (job_role_stage:rl_stall_budget:seconds)"
    evaluate(tmp_path, "stalls.rules.yaml", given, {expression: expected})


@pytest.mark.parametrize(
    ("progress_age", "given_up"), [(94.9, False), (95.1, True)], ids=["went-on", "gave-up"]
)
def test_the_rules_and_inspect_give_an_exception_as_long_to_settle(
    progress_age: float, given_up: bool, tmp_path: Path
) -> None:
    """A mark of progress within five seconds of an exception 100 s ago is the exception's own."""
    (rank,) = job(
        1,
        {"progress_age_seconds": progress_age, "first_failure_age_seconds": 100.0},
    )
    assert failed([rank]) is given_up
    given = exported([rank])
    key = {"cluster": "c", "job_id": rank.job_id, "role": rank.role}
    # The rules are evaluated at 60 s.
    given.add("rl_rank_first_failure_timestamp_seconds", 60 - 100, **key, node="n0", rank=rank.rank)
    expected = {series("role:rl_given_up:ranks", **key): 1} if given_up else {}
    evaluate(tmp_path, "stages.rules.yaml", given, {"role:rl_given_up:ranks": expected})


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
