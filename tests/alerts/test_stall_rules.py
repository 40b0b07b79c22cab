"""The recording rules and `inspect` judge the same ranks: by cases, at each threshold, at random.

The two hold their thresholds apart, in PromQL and in Python: cases just under and just over each
show that they mean the same.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from stagewatch.incidents.departures import Departures
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.judge import Verdict, failed, judge
from stagewatch.judgement.limits import (
    FACTOR,
    MIN_GAPS,
    MIN_SECONDS,
    RECENT_FACTOR,
    UNTAUGHT_SECONDS,
    budget_seconds,
)
from stagewatch.ranks.model import Rank
from stagewatch.ranks.records import StageTotals
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import BUCKET_BOUNDS, BUCKETS
from tests.alerts.promtool import needs_promtool, play, series
from tests.fake_clock import Clock
from tests.judgement.cases import (
    CASES,
    COMPUTE,
    GONE,
    IO,
    LATE,
    PARKED,
    POLL,
    ROLES,
    SPIN,
    STOPPED,
    TRACED,
    UNKNOWN,
    WORLD,
    Differences,
    absent,
    inside,
    member,
    ranks_of,
    sends,
    stands,
    with_budget,
)
from tests.judgement.jobs import job

pytestmark = needs_promtool

JOBS = 60
STEP = 5
"""Seconds between two looks."""
SEEN = 13
"""The look at which all that is exported of a rank begins, but for whether it lives, ..."""
JUDGED = 24
"""... and the one at which it is judged: the rules take the class that a rank showed a minute
before, so that before the 13th there is only that."""


class Exported:
    """What node agents would export of some ranks, in promtool's notation."""

    def __init__(self, ranks: list[RankFacts]) -> None:
        self.given: dict[str, str] = {}
        for rank in ranks:
            self._rank(rank)

    def _add(self, metric: str, value: float | None, **labels: object) -> None:
        if value is not None:
            self.given[series(metric, **labels)] = f"_x{SEEN} {value!r}x{JUDGED - SEEN}"

    def _rank(self, rank: RankFacts) -> None:
        node = f"n{rank.rank % 3}"
        key = {"cluster": "c", "node": node, "job_id": rank.job_id, "role": rank.role}
        mine = {**key, "rank": rank.rank}
        up = series("rl_rank_up", **mine)
        if rank.left_seconds is not None:
            self.given[up] = f"1x{JUDGED - round(rank.left_seconds / STEP) - 1} stale"
            return
        self.given[up] = f"{int(rank.wait_class is not WaitClass.GONE)}x{JUDGED}"
        self._add("rl_rank_info", 1, **mine, pid=rank.pid, world_size=rank.world_size)
        self._add("rl_rank_progress_age_seconds", rank.progress_age_seconds, **mine)
        self._add("rl_rank_started_timestamp_seconds", rank.started, **mine)
        self._add("rl_rank_expected_seconds", rank.expected_seconds, **mine)
        self._add("rl_rank_at_work", 1 if rank.at_work else None, **mine, by="io")
        waited = rank.storage_wait_seconds or None
        self._add("rl_rank_storage_wait_seconds", waited, **mine)
        where = {"stage": rank.stage, "substage": rank.substage}
        self._add("rl_rank_stage_open_seconds", rank.stage_open_seconds, **mine, **where)
        self._add("rl_rank_wait_class", 1, **mine, **{"class": rank.wait_class.value})
        for before in rank.class_before:
            labels = {**mine, "class": before.value}
            now = f" _x{SEEN - 8} 1x{JUDGED - SEEN}" if before is rank.wait_class else ""
            self.given[series("rl_rank_wait_class", **labels)] = f"1x6 stale{now}"
        self._add("rl_rank_step", rank.step, **mine)
        self._add("rl_rank_step_age_seconds", rank.step_age_seconds, **mine)
        self._groups(rank, mine)
        if rank.stack.group:
            still = int(rank.stack.still)
            self._add("rl_rank_stack_group", still, **mine, group=rank.stack.group)
        teach = {**key, "node": "n0", "stage": "train"}
        gaps = 90 if rank.gaps is None else rank.gaps
        for bound in ("4.0", "+Inf"):
            self._add("rl_progress_gap_seconds_bucket", gaps, **teach, le=bound)
        self._add("rl_progress_gap_seconds_count", gaps, **teach)
        for stage in rank.stages:
            self._add("rl_progress_gap_longest_seconds", 4.0, **teach | {"stage": stage})

    def _groups(self, rank: RankFacts, mine: dict[str, object]) -> None:
        for group, sequence in rank.collectives.items():
            self._add("rl_rank_collective_seq", sequence, **mine, group=group)
        for group, size in rank.group_sizes.items():
            self._add("rl_rank_group_size", size, **mine, group=group)
        for group, call in rank.inside.items():
            peer = "" if call.peer is None else call.peer
            within = {**mine, "group": group}
            name = "rl_rank_collective_inside_seconds"
            self._add(name, call.seconds, **within, op=call.op, peer=peer)
            self._add("rl_rank_collective_elements", call.elements, **within)
        for name, seconds in rank.calls.items():
            self._add("rl_call_oldest_seconds", seconds, **mine, name=name)


def judged_by_both(directory: Path, ranks: list[RankFacts]) -> dict[str, Verdict]:
    """The verdicts of `inspect` by job, after the rules were seen to say the same of all jobs."""
    verdicts = judge(ranks)
    expected: dict[str, dict[str, float]] = {
        "max by (job_id, role, rank, evidence) (job:rl_stall:culprit)": {
            series(
                "",
                job_id=charge.rank.job_id,
                role=charge.rank.role,
                rank=charge.rank.rank,
                evidence=charge.evidence,
            ): 1
            for verdict in verdicts
            for charge in verdict.charges
        },
        "max by (job_id, role, evidence) (job:rl_stall:group_only)": {
            series("", job_id=one.job_id, role=one.role, evidence=one.evidence): 1
            for one in verdicts
            if one.stalled and not one.charges
        },
        "max by (job_id, role, rank, name) (rank:rl_stall:call_seconds)"
        " and on (job_id, role, rank) job:rl_stall:culprit": {
            series("", job_id=rank.job_id, role=rank.role, rank=rank.rank, name=name): seconds
            for verdict in verdicts
            for rank in verdict.culprits
            for name, seconds in (rank.call,) * (rank.call is not None)
        },
        "max by (job_id, role) (job:rl_stall:active) ^ 0": {
            series("", job_id=one.job_id, role=one.role): 1 for one in verdicts if one.stalled
        },
    }
    play(
        directory,
        ["stalls.rules.yaml"],
        Exported(ranks).given,
        [(expression, f"{STEP * JUDGED}s", samples) for expression, samples in expected.items()],
        interval=f"{STEP}s",
    )
    return {verdict.job_id: verdict for verdict in verdicts}


def test_the_rules_and_inspect_give_every_case_the_same_verdict(tmp_path: Path) -> None:
    ranks = [rank for name, case in CASES.items() for rank in case.ranks(name)]
    verdicts = judged_by_both(tmp_path, ranks)
    assert {
        name: ({charge.rank.rank: charge.evidence for charge in verdict.charges}, verdict.stalled)
        for name, verdict in verdicts.items()
    } == {name: (case.culprits, case.stalled) for name, case in CASES.items()}
    assert {
        name: verdict.evidence for name, verdict in verdicts.items() if not verdict.charges
    } == {name: case.nobody for name, case in CASES.items() if not case.culprits}


def test_the_rules_and_inspect_judge_the_roles_of_a_job_alike(tmp_path: Path) -> None:
    judged_by_both(tmp_path, [rank for name in ROLES for rank in ranks_of(name)])


def aged(seconds: float, **more: Any) -> Differences:
    return {"progress_age_seconds": seconds, **more}


def some(count: int, difference: Differences) -> dict[int, Differences]:
    return dict.fromkeys(range(count), difference)


ALONE: Differences = {"collectives": {}}
OUTSIDE: Differences = {"inside": {}}
WORK = COMPUTE | {"at_work": True}
THRESHOLDS: dict[str, tuple[int, Differences, dict[int, Differences], dict[int, Differences]]] = {
    "budget-taught": (1, ALONE, {0: aged(11.8)}, {0: aged(11.95)}),
    "budget-untaught": (2, ALONE, {0: aged(29, stage="reward")}, {0: aged(31, stage="reward")}),
    **{
        f"still-{stage}": (
            2,
            ALONE | POLL,
            {0: aged(59, stage=stage)},
            {0: aged(61, stage=stage)},
        )
        for stage in ("checkpoint", "init", "eval")
    },
    **{
        f"patience-{stage}": (
            2,
            ALONE,
            {0: aged(seconds - 1, stage=stage)},
            {0: aged(seconds + 1, stage=stage)},
        )
        for stage, seconds in (("checkpoint", 900), ("init", 1800), ("eval", 1800))
    },
    "one-wait-in-a-save": (
        2,
        ALONE | IO | {"stage": "checkpoint", "storage_wait_seconds": 61.0},
        {0: {"storage_wait_seconds": 59.0}},
        {0: {"storage_wait_seconds": 61.0}},
    ),
    "at-work": (2, ALONE, {0: WORK | aged(71.8)}, {0: WORK | aged(71.95)}),
    "at-work-young": (
        1,
        ALONE | WORK | {"gaps": 9},
        {0: aged(191.8)},
        {0: aged(191.95)},
    ),
    "young": (1, ALONE | WORK | aged(190), {0: {"gaps": 9}}, {0: {"gaps": 10}}),
    "running": (2, WORLD | SPIN | OUTSIDE | aged(71.8), {}, {1: aged(71.95), 0: aged(71.95)}),
    "running-in-no-collective": (
        2,
        WORLD | SPIN | OUTSIDE | aged(71.8),
        {},
        some(2, inside("world", 220, 2)),
    ),
    "running-with-none-told": (2, WORLD | SPIN | OUTSIDE | aged(71.8), {}, some(2, ALONE)),
    "running-all": (2, WORLD | SPIN | OUTSIDE | aged(71.8), {}, {0: PARKED | aged(71.8)}),
    "marks-and-steps": (
        4,
        inside("world", 9, 4) | aged(71.8),
        {0: member(("world", 8, 4)) | aged(2.0)},
        {0: member(("world", 8, 4)) | aged(2.0), **{n: aged(71.95) for n in (1, 2, 3)}},
    ),
    "a-mark": (
        2,
        ALONE,
        {0: aged(10.1, stage="reward", step_age_seconds=60.0)},
        {0: aged(9.9, stage="reward", step_age_seconds=60.0)},
    ),
    "a-mark-after-the-others": (
        2,
        ALONE | aged(14.0),
        {0: aged(9.1, step_age_seconds=60.0)},
        {0: aged(8.9, step_age_seconds=60.0)},
    ),
    "a-step-in-a-taught-stage": (
        2,
        ALONE,
        {0: aged(2.0, step_age_seconds=11.8)},
        {0: aged(2.0, step_age_seconds=11.95)},
    ),
    "a-step-in-an-untaught-stage": (
        2,
        ALONE,
        {0: aged(2.0, stage="reward", step_age_seconds=29.0)},
        {0: aged(2.0, stage="reward", step_age_seconds=31.0)},
    ),
    "younger": (
        8,
        WORLD | {"started": 1000.0},
        {3: inside("world", 4, 8) | {"started": 1061.0}},
        {3: inside("world", 4, 8) | {"started": 1060.0}},
    ),
    "odd-by-class": (
        6,
        ALONE,
        some(2, PARKED | {"class_before": frozenset({WaitClass.COMPUTE})}),
        some(3, PARKED | {"class_before": frozenset({WaitClass.COMPUTE})}),
    ),
    "in-io": (6, ALONE, some(3, IO), some(4, IO)),
    "in-a-stage-of-their-own": (
        6,
        ALONE,
        some(2, {"stage": "reward"}),
        some(3, {"stage": "reward"}),
    ),
    "lagging": (
        6,
        inside("world", 9, 6),
        some(2, inside("world", 8, 6)),
        some(3, inside("world", 8, 6)),
    ),
    "passed": (
        6,
        inside("world", 8, 6),
        some(2, inside("world", 9, 6)),
        some(3, inside("world", 9, 6)),
    ),
    "another-operation": (
        6,
        inside("world", 9, 6),
        some(2, inside("world", 9, 6, "barrier")),
        some(3, inside("world", 9, 6, "barrier")),
    ),
    "left": (8, WORLD, {5: absent(30.0)}, {5: absent(35.0)}),
    "most-left": (8, WORLD, some(4, absent()), some(5, absent())),
    "in-a-call": (
        2,
        ALONE | PARKED | {"calls": {"search": 400.0}},
        {1: {"calls": {"search": 9.9}}},
        {1: {"calls": {"search": 10.0}}},
    ),
    "unknown": (
        6,
        ALONE,
        some(2, UNKNOWN)
        | {
            5: IO | {"wait_class": WaitClass.PARKED, "class_before": frozenset({WaitClass.COMPUTE})}
        },
        some(3, UNKNOWN) | {5: PARKED | {"class_before": frozenset({WaitClass.COMPUTE})}},
    ),
}
"""Jobs on either side of a threshold: ranks, what they have in common, what makes some differ."""


def test_the_rules_hold_the_same_numbers(tmp_path: Path) -> None:
    """Each threshold turns the verdict of both, between the same two cases."""
    ranks = [
        with_budget(rank)
        for name, (size, common, *sides) in THRESHOLDS.items()
        for side, special in zip(("under", "over"), sides, strict=True)
        for rank in job(
            size,
            LATE | common,
            job_id=f"{name}-{side}",
            **{f"rank_{number}": difference for number, difference in special.items()},
        )
    ]
    verdicts = judged_by_both(tmp_path, ranks)

    def outcome(job_id: str) -> tuple[bool, str, list[int]]:
        one = verdicts[job_id]
        return one.stalled, one.evidence, [rank.rank for rank in one.culprits]

    same = [name for name in THRESHOLDS if outcome(f"{name}-under") == outcome(f"{name}-over")]
    assert same == []


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
        PARKED | {"class_before": frozenset({chance.choice(list(WaitClass))})},
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


SEEDS = range(540, 544)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rules_name_whom_inspect_names(seed: int, tmp_path: Path) -> None:
    judged_by_both(tmp_path, made_up_jobs(seed))


def test_made_up_jobs_have_every_kind_of_verdict() -> None:
    verdicts = [verdict for seed in SEEDS for verdict in judge(made_up_jobs(seed))]
    seen = {verdict.evidence for verdict in verdicts}
    assert "missing" in {verdict.evidence for verdict in verdicts if verdict.charges}
    assert seen >= {"", "group_only", "missing", "mismatch", "process_gone", "awaited"}
    assert seen >= {"odd_one_out", "io_blocked", "left_loop_early", "livelock", "stage_differs"}
    assert seen >= {"stack_differs", "role_differs"}


def test_the_rules_and_inspect_forget_at_once_who_has_left(tmp_path: Path) -> None:
    key = {"cluster": "c", "job_id": "540", "role": "train"}
    given = {
        series("rl_rank_up", **key, node="n", rank=0): "1x200",
        series("rl_rank_up", **key, node="n", rank=1): "1x11 stale",
    }
    clock = Clock(0.0)
    departures = Departures(clock=clock)
    departures.look([Rank("540", "train", rank, pid=4000 + rank) for rank in (0, 1)])
    clock.now = 60.0
    departures.look([Rank("540", "train", 0, pid=4000)])
    asked = []
    for clock.now in (955.0, 960.0):
        left = {series("", rank=one.rank): 60 for one in departures.facts(job(1))}
        asked.append(
            ("max by (rank) (rank:rl_rank_left:timestamp_seconds)", f"{clock.now:.0f}s", left)
        )
    assert [len(left) for _, _, left in asked] == [1, 0]
    play(tmp_path, ["stalls.rules.yaml"], given, asked, interval="5s")


@pytest.mark.parametrize(("gaps", "taught"), [(MIN_GAPS - 1, False), (MIN_GAPS, True)])
def test_the_rules_and_inspect_learn_of_as_many_gaps(
    gaps: int, taught: bool, tmp_path: Path
) -> None:
    counts = (gaps, *(0,) * (BUCKETS - 1))
    totals = {"train": StageTotals((0,) * BUCKETS, 0.0, counts, 0.0)}
    budget = budget_seconds(totals, "train", still=False)
    assert budget == (MIN_SECONDS if taught else UNTAUGHT_SECONDS)
    key = {"cluster": "c", "job_id": "7", "role": "train"}
    given = {series("rl_rank_up", **key, rank=0): "1x15"}
    for bound in (repr(BUCKET_BOUNDS[0]), "+Inf"):
        name = series("rl_progress_gap_seconds_bucket", **key, stage="train", le=bound)
        given[name] = f"{gaps}x15"
    given[series("rl_progress_gap_seconds_count", **key, stage="train")] = f"{gaps}x15"
    expected = {series("", **key, stage="train"): MIN_SECONDS} if taught else {}
    expression = "max without () (job_role_stage:rl_stall_budget:seconds)"
    play(tmp_path, ["stalls.rules.yaml"], given, [(expression, "1m", expected)], interval="5s")


@pytest.mark.parametrize("still", [False, True])
def test_the_rules_and_inspect_give_a_rank_the_same_budget(still: bool, tmp_path: Path) -> None:
    """By all gaps of the stage, by the latest, by how many ranks have shown that, and by whether a
    long stage is waited in."""
    chance = random.Random(542)
    given: dict[str, str] = {}
    expected: dict[str, float] = {}
    for number in range(60):
        stage = chance.choice(["train", "rollout", "checkpoint", "eval", "init"])
        filled = chance.sample(range(BUCKETS), chance.randint(1, 6))
        most = chance.choice([1, 50])
        counts = tuple(chance.randint(0, most) if k in filled else 0 for k in range(BUCKETS))
        recent = chance.choice([0.0, 0.5, 20.0, 300.0, 2000.0])
        longest = recent + chance.choice([0.0, 15.0])
        totals = StageTotals((0,) * BUCKETS, 0.0, counts, 0.0, longest, recent)
        ranks = chance.choice([1, 2, 20])
        budget = budget_seconds({stage: totals}, stage, still=still, ranks=ranks)
        key = {"cluster": "c", "job_id": f"j{number}", "role": "train"}
        mine = {**key, "node": "n", "rank": 0}
        expected[series("", **key, stage=stage)] = round(budget * 1000 + 1e-9)
        for rank in range(ranks):
            given[series("rl_rank_up", **mine | {"rank": rank})] = "1x15"
        given[series("rl_rank_progress_age_seconds", **mine)] = "90000x15"
        given[series("rl_rank_stage_open_seconds", **mine, stage=stage)] = "90000x15"
        wait_class = "poll" if still else "spin"
        given[series("rl_rank_wait_class", **mine, **{"class": wait_class})] = "1x15"
        for name, seconds in (("longest", longest), ("recent", recent)):
            if seconds:
                name = series(f"rl_progress_gap_{name}_seconds", **key, node="n", stage=stage)
                given[name] = f"{seconds}x15"
        for k in range(BUCKETS):
            bound = repr(BUCKET_BOUNDS[k]) if k < len(BUCKET_BOUNDS) else "+Inf"
            name = series("rl_progress_gap_seconds_bucket", **key, stage=stage, le=bound)
            given[name] = f"{sum(counts[: k + 1])}x15"
        name = series("rl_progress_gap_seconds_count", **key, stage=stage)
        given[name] = f"{sum(counts)}x15"
    assert FACTOR > RECENT_FACTOR
    expression = (
        "round(max by (cluster, job_id, role, stage) (rank:rl_stall:budget_seconds) * 1000)"
    )
    play(tmp_path, ["stalls.rules.yaml"], given, [(expression, "1m", expected)], interval="5s")


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
    given = Exported([rank]).given
    key = {"cluster": "c", "job_id": rank.job_id, "role": rank.role}
    when = STEP * JUDGED
    name = "rl_rank_first_failure_timestamp_seconds"
    given[series(name, **key, node="n0", rank=rank.rank)] = f"{when - 100}x{JUDGED}"
    expected = {series("role:rl_given_up:ranks", **key): 1} if given_up else {}
    asked = [("role:rl_given_up:ranks", f"{when}s", expected)]
    play(tmp_path, ["stages.rules.yaml"], given, asked, interval=f"{STEP}s")
