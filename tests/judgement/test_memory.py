"""What a judge remembers between two looks, and when it wakes somebody."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from stagewatch.gpu.device_state import Device
from stagewatch.judgement.facts import Inside, KernelWait, RankFacts
from stagewatch.judgement.headline import findings_of
from stagewatch.judgement.judge import judge
from stagewatch.judgement.limits import Limits, Shown
from stagewatch.judgement.memory import Course, Moment, State
from stagewatch.judgement.paging import marked_early
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.ranks.waits.naming import ENDED
from tests.judgement.cases import inside, member
from tests.judgement.jobs import PARKED, SPINNING, job

BEGAN = 1_000_000.0
TAUGHT = {"train": {"train": Shown(90, 4.0, 4.0, 4.0)}}
"""Budget 12 s, patience 60 s."""


def at(second: float, ranks: list[RankFacts], shown: Any = None) -> Moment:
    """A moment so long after the job's last progress: what is overdue has been silent for that."""
    aged = [
        dataclasses.replace(rank, progress_age_seconds=second)
        if rank.progress_age_seconds and rank.progress_age_seconds > 100
        else rank
        for rank in ranks
    ]
    return Moment(BEGAN + second, tuple(aged), TAUGHT if shown is None else shown)


def course(*moments: Moment, limits: Limits | None = None) -> State:
    """The state of the only role after these moments."""
    looks = Course(limits or Limits())
    states: list[State] = []
    for moment in moments:
        states = looks.look(moment)
    (state,) = states
    return state


GAPS: dict[str, Any] = {"gaps": 90}
HUNG = [
    dataclasses.replace(rank, gaps=90 if rank.rank == 0 else 0)
    for rank in job(4, SPINNING, rank_2=PARKED | {"collectives": {"world": 219}})
]


def every(step: int, until: int, ranks: list[RankFacts]) -> list[Moment]:
    return [at(second, ranks) for second in range(step, until + 1, step)]


def test_a_suspicion_lasts_since_its_first_look_and_ends_with_progress() -> None:
    state = course(*every(5, 60, HUNG))
    assert state.verdict.stalled
    assert state.since == BEGAN + 20  # the first look beyond the budget of 15 s
    moved = [dataclasses.replace(rank, progress_age_seconds=1.0) for rank in HUNG]
    assert course(*every(5, 60, HUNG), at(65, moved)).since is None
    again = course(*every(5, 60, HUNG), at(65, moved), at(100, HUNG))
    assert again.since == BEGAN + 100


def test_somebody_is_woken_once_the_patience_is_over_and_the_suspicion_has_lasted() -> None:
    assert not course(*every(5, 60, HUNG)).paged
    late = course(*every(5, 65, HUNG))
    assert (late.paged, late.patience_seconds, late.silent_seconds) == (True, 60.0, 65.0)
    assert not course(at(300, HUNG)).paged  # seen for the first time
    assert course(at(300, HUNG), at(330, HUNG)).paged


def test_nobody_is_said_to_hold_up_a_job_before_somebody_would_be_woken() -> None:
    told = [sentence(course(*every(5, until, HUNG)).verdict) for until in (60, 65)]
    alike = " at step 220; 3 ranks wait for it, spinning, in all_reduce of world, which it has not "
    assert told == [
        f"job 540: rank 2 (pid 4002) has been parked in futex for 1 min{alike}entered",
        f"job 540: rank 2 (pid 4002) holds up the job: parked in futex for 1 min 5 s{alike}entered",
    ]


@pytest.mark.parametrize(
    ("second", "gaps", "begins"),
    [
        (60, 90, "Job 540 has waited since "),
        (65, 90, "Job 540 has hung since "),
        (65, 1, "Job 540 has waited since "),  # a young job
        (185, 1, "Job 540 has hung since "),
    ],
)
def test_who_has_only_looked_now_knows_the_patience_too(
    second: float, gaps: int, begins: str
) -> None:
    ranks = [dataclasses.replace(rank, gaps=gaps) for rank in at(second, HUNG).ranks]
    shown = {("540", role): stages for role, stages in TAUGHT.items()}
    (found,) = findings_of(marked_early(judge(ranks), shown), ranks)
    assert found.headline.startswith(begins)
    assert ("holds up the job" in found.sentence) is ("hung" in begins)


def test_early_on_nothing_is_suspected_where_no_rank_stands_out() -> None:
    ranks = job(4, SPINNING | GAPS)
    told = [sentence(course(*every(5, until, ranks)).verdict) for until in (60, 65)]
    assert [one.rpartition("; ")[2] for one in told] == [
        "no rank stands out",
        "suspect a link, a switch or a GPU",
    ]


def test_a_site_sets_how_long_nobody_is_woken() -> None:
    assert not course(*every(5, 115, HUNG), limits=Limits(page_seconds=120.0)).paged
    assert course(*every(5, 125, HUNG), limits=Limits(page_seconds=120.0)).paged


@pytest.mark.parametrize(
    ("change", "shown", "patience"),
    [
        ({}, {"train": {"train": Shown(90, 4.0, 100.0, 100.0)}}, 150.0),
        ({}, {"train": {"train": Shown(90, 4.0, 4.0, 4.0), "idle": Shown(1, 0, 80.0, 0)}}, 120.0),
        ({}, {"train": {"train": Shown(90, 4.0, 4000.0, 4.0)}}, 3600.0),
        ({"gaps": 1}, {"train": {"train": Shown(4, 4.0, 4.0, 4.0)}}, 180.0),
        ({"stage": "checkpoint"}, None, 900.0),
        ({"stage": "init"}, None, 1800.0),
        ({"at_work": True}, None, 900.0),
        ({"wait_class": WaitClass.SPIN, "stage": "rollout", "collectives": {}}, None, 600.0),
        ({"kernel_waits": (KernelWait(""),), "heard_seconds": 4.0}, None, 600.0),
        ({"kernel_waits": (KernelWait(""),), "heard_seconds": 399.0}, None, 180.0),
        ({"kernel_waits": (KernelWait("a sleep"),), "heard_seconds": 4.0}, None, 60.0),
        ({"heard_seconds": 4.0}, None, 60.0),
        ({"unmarked": True}, None, None),
    ],
)
def test_how_long_nobody_is_woken(change: Any, shown: Any, patience: float | None) -> None:
    ranks = [
        dataclasses.replace(rank, **{"gaps": 90, **change})
        if rank.rank == 2
        else dataclasses.replace(rank, gaps=change.get("gaps", 0))
        for rank in HUNG
    ]
    assert course(at(400, ranks, shown)).patience_seconds == patience


ASKS = PARKED | {"kernel_waits": (KernelWait("a receive", process="tool (pid 7)"),)}
ASKS_IN_VAIN = PARKED | {"kernel_waits": (KernelWait("a receive", process=f"tool{ENDED}"),)}


@pytest.mark.parametrize(
    ("ranks", "patience"),
    [
        (HUNG, 60.0),
        (job(4, SPINNING), 60.0),
        (job(4, PARKED | inside("world", 220, 8, "barrier")), 60.0),
        (job(4, PARKED | inside("world", 220, 8, "unknown")), 180.0),
        (job(4, PARKED | {"collectives": {}}), 180.0),
        (job(4, ASKS | {"collectives": {}}), 180.0),
        (job(4, ASKS_IN_VAIN | {"collectives": {}}), 60.0),
    ],
)
def test_somebody_who_may_be_at_work_unseen_is_given_three_minutes(
    ranks: list[RankFacts], patience: float
) -> None:
    """A rank that is late, all in one collective, members that miss in one whose end is known or is
    not, all asleep, a tool that is asked, one that has ended."""
    taught = [dataclasses.replace(rank, gaps=90) for rank in ranks]
    assert course(at(400, taught)).patience_seconds == patience


def test_a_bootstrap_that_waits_for_a_rank_is_no_long_stage() -> None:
    """The others are in the making of groups, which one has not come to, and is not at work."""
    init = {
        "stage": "init",
        "collectives": {"init": 1},
        "group_sizes": {"init": 4},
        "inside": {"init": Inside("init_process_group", 390.0)},
        "gaps": 90,
    }
    late = PARKED | {"stage": "init", "collectives": {}, "gaps": 0}
    ranks = job(4, SPINNING | init, rank_2=late)
    state = course(at(400, ranks))
    assert [charge.rank.rank for charge in state.verdict.charges] == [2]
    assert state.patience_seconds == 60.0


def test_work_counts_for_half_a_minute_after_it_was_seen() -> None:
    working = [dataclasses.replace(rank, at_work=rank.rank == 2) for rank in HUNG]
    assert course(at(400, working), at(425, HUNG)).patience_seconds == 900.0
    assert course(at(400, working), at(435, HUNG)).patience_seconds == 60.0


@pytest.mark.parametrize(("device", "woken"), [(Device.IDLE, True), (Device.WORKS, False)])
def test_who_tries_again_may_wait_for_another_role_whose_gpu_computes(
    device: Device, woken: bool
) -> None:
    tries = {"progress_age_seconds": 2.0, "step_age_seconds": 412.0, "gaps": 90}
    train = job(4, SPINNING | GAPS, rank_2=PARKED | {"collectives": {"world": 219}} | tries)
    rollout = job(2, PARKED | GAPS | {"collectives": {}, "device": device}, role="rollout")
    looks = Course(Limits())
    for second in range(300, 400, 5):
        states = looks.look(at(second, [*train, *rollout]))
    (state,) = [state for state in states if state.verdict.role == "train"]
    assert [charge.evidence for charge in state.verdict.charges] == ["livelock"]
    assert state.paged is woken


def test_a_job_that_was_suspended_is_left_alone_for_a_while() -> None:
    stopped = [dataclasses.replace(rank, wait_class=WaitClass.STOPPED) for rank in HUNG]
    state = course(at(400, stopped))
    assert state.verdict.excuse and state.verdict.excuse.kind == "suspended"
    soon = course(at(400, stopped), at(425, HUNG))
    assert (soon.verdict.stalled, soon.silent_seconds) == (False, 25.0)
    later = course(at(400, stopped), at(435, HUNG))
    assert (later.verdict.stalled, later.silent_seconds, later.paged) == (True, 35.0, False)


def test_the_time_in_which_all_ranks_idled_is_no_silence() -> None:
    """They waited for rollouts for long, and save what they have, at last."""
    idle = [
        dataclasses.replace(rank, stage="idle", inside={}, wait_class=WaitClass.PARKED)
        for rank in HUNG
    ]
    saving = [dataclasses.replace(rank, wait_class=WaitClass.IO) for rank in idle]
    rested = course(at(400, idle))
    assert rested.verdict.excuse and rested.verdict.excuse.kind == "idle"
    soon = course(at(400, idle), *(at(second, saving) for second in range(405, 456, 5)))
    assert (soon.verdict.stalled, soon.silent_seconds, soon.paged) == (True, 55.0, False)
    later = course(at(400, idle), *(at(second, saving) for second in range(405, 591, 5)))
    assert (later.silent_seconds, later.paged) == (190.0, True)


@pytest.mark.parametrize(("answer", "named"), [((), [6]), ((KernelWait(""),), [0, 6])])
def test_who_is_only_awaited_is_not_named_before_the_kernel_has_answered(
    answer: tuple[KernelWait, ...], named: list[int]
) -> None:
    """Of two engines, one waits for a rank that may wait itself, and one does two things."""
    first = inside("tp:0", 119, 4) | GAPS
    second = inside("tp:1", 104, 4) | GAPS
    ranks = job(
        8,
        SPINNING | first,
        rank_0=PARKED | member(("tp:0", 118, 4)) | {"kernel_waits": answer},
        **{f"rank_{rank}": second for rank in (4, 5, 7)},
        rank_6=inside("tp:1", 104, 4, "broadcast") | GAPS,
    )
    state = course(at(20, ranks))
    assert [charge.rank.rank for charge in state.verdict.charges] == named


def test_a_debugger_excuses_what_nobody_suspected_before_it_came() -> None:
    held = [
        dataclasses.replace(rank, wait_class=WaitClass.TRACED if rank.rank == 2 else SPIN)
        for rank in HUNG
    ]
    assert not course(at(400, held)).verdict.stalled
    assert course(at(400, HUNG), at(405, held)).verdict.stalled


SPIN = WaitClass.SPIN


def test_nobody_is_named_while_ranks_are_dying() -> None:
    """Where a whole job ends, the agents of its nodes do not see it at one moment."""
    died = [
        dataclasses.replace(rank, wait_class=WaitClass.GONE if rank.rank == 2 else SPIN)
        for rank in HUNG
    ]
    assert not course(at(5, HUNG), at(10, died), at(15, died)).verdict.charges
    later = course(at(5, HUNG), at(10, died), at(20, died))
    assert [charge.evidence for charge in later.verdict.charges] == ["process_gone"]
    assert course(at(10, died)).verdict.charges  # dead for who knows how long
    watched = Course(watched=True)
    assert not watched.look(at(10, died))[0].verdict.charges


@pytest.mark.parametrize(("waits", "patience"), [(True, 60.0), (False, 180.0)])
def test_nobody_is_woken_early_for_a_dead_rank_that_nobody_is_seen_to_wait_for(
    waits: bool, patience: float
) -> None:
    """The others sleep, and may be about to begin again without it."""
    live = SPINNING if waits else PARKED | {"inside": {}, "stage": "train"}
    state = course(at(400, job(4, live | GAPS, rank_2={"wait_class": WaitClass.GONE})))
    assert [charge.evidence for charge in state.verdict.charges] == ["process_gone"]
    assert state.patience_seconds == patience


def test_a_judge_that_starts_later_says_the_same() -> None:
    """Once it has gone through the last minutes, as it does when it starts."""
    stopped = [dataclasses.replace(rank, wait_class=WaitClass.STOPPED) for rank in HUNG]
    moments = [*every(5, 100, HUNG), *(at(s, stopped) for s in range(105, 120, 5))]
    moments += [at(second, HUNG) for second in range(120, 400, 5)]

    def said(seen: list[Moment]) -> list[tuple[str, bool, bool]]:
        looks = Course()
        states = [state for moment in seen for state in looks.look(moment)]
        return [(one.verdict.evidence, one.verdict.stalled, one.paged) for one in states]

    whole = said(moments)
    assert len(whole) == len(moments)
    for first in range(0, len(moments), 20):
        assert said(moments[first:])[12:] == whole[first + 12 :]


def test_one_mark_after_a_long_silence_is_no_retry() -> None:
    """As where a time-out ends the stage: the rank that was held up is not at fault for the end."""
    silent = {"collectives": {}, "step_age_seconds": 60.0}
    waiting = job(4, SPINNING | silent)
    marks = {"progress_age_seconds": 1.0, "inside": {}}
    one_marks = job(4, SPINNING | silent, rank_1=SPINNING | silent | marks)

    def evidence(*moments: Moment) -> str:
        return course(*moments).verdict.evidence

    assert evidence(*every(5, 60, waiting), at(65, one_marks)) != "livelock"
    assert evidence(*every(5, 60, waiting), *every(5, 90, one_marks)[12:]) == "livelock"
    assert evidence(*every(5, 60, one_marks)) == "livelock"
