"""When somebody is woken for a job that seems to hang: the patience that the job has taught."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stagewatch.judgement.case import Case, Charge
from stagewatch.judgement.facts import KernelWait, RankFacts
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.limits import (
    DEFAULT,
    LONG_STAGES,
    NOTHING_SHOWN,
    RECOVERED_FACTOR,
    RECOVERED_SECONDS,
    Limits,
    Stages,
)
from stagewatch.judgement.roles import OUTSIDE
from stagewatch.ranks.wait_class import WaitClass

_BUSY = (WaitClass.COMPUTE, WaitClass.SPIN)
_OF_COLLECTIVES = ("cycle", "mismatch", "missing")
"""Evidence by which nobody can be named."""


def patience_seconds(
    verdict: Verdict,
    job: Sequence[RankFacts],
    shown: Stages,
    *,
    worked: bool,
    sure: bool,
    limits: Limits,
) -> float | None:
    """For how long a silent role pages nobody; `None` if it never pages.

    `job`: the ranks of all of its roles.
    `worked`: whether the ranks at fault were at work lately.
    `sure`: whether the job surely hangs.
    """
    case = verdict.case
    if _boundless(case):
        return None
    reasons = [limits.page_seconds, _recovered(case, shown)]
    if case.young or not sure:
        reasons.append(limits.young_seconds)
    if worked:
        reasons.append(limits.working_seconds)
    suspects = _suspects(verdict, job)
    reasons += _busy(verdict, suspects, shown, limits)
    if all(rank.is_answered for rank in suspects):
        reasons.append(limits.untaught_busy_seconds)
    if not any(charge.group == "init" for charge in verdict.charges):
        reasons += [limits.long(rank.stage) or 0.0 for rank in case.live]
    return max(reasons)


def silent_seconds(verdict: Verdict) -> float | None:
    """How long no rank of a role has made progress; `None` if no rank is overdue."""
    ages = [rank.progress_age_seconds for rank in verdict.case.live if rank.overdue]
    return min((age for age in ages if age is not None), default=None)


def in_one_look(
    verdicts: Sequence[Verdict],
    shown: Mapping[tuple[str, str], Stages],
    limits: Limits = DEFAULT,
) -> list[Verdict]:
    """The same verdicts, marked as early or not, for an observer who looks once.

    `shown`: what is known of the stages of every job and role.
    """
    jobs: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        jobs[verdict.job_id].append(verdict)
    due: set[str] = set()
    for job_id, of_job in jobs.items():
        ranks = [rank for one in of_job for rank in one.ranks]
        sure = surely_hangs(of_job)
        for one in of_job:
            stages = shown.get((job_id, one.role), {})
            worked = works(one, ranks)
            patience = patience_seconds(one, ranks, stages, worked=worked, sure=sure, limits=limits)
            if is_due(one, silent_seconds(one), patience):
                due.add(job_id)
    return [replace(one, early=one.job_id not in due) for one in verdicts]


def is_due(verdict: Verdict, silent: float | None, patience: float | None) -> bool:
    """Whether a role is silent for longer than its patience, if that has an end."""
    return verdict.stalled and None not in (silent, patience) and (silent or 0) > (patience or 0)


def surely_hangs(verdicts: Sequence[Verdict]) -> bool:
    """Whether no part of a job can be at work unseen, such as a slow tool or server: a rank is
    surely at fault, or the awaited process has ended, or all waits are in collectives."""
    return (
        any(_is_stuck(one, verdicts) for verdict in verdicts for one in verdict.charges)
        or any(wait.has_ended for verdict in verdicts for wait in verdict.case.outside)
        or any(verdict.evidence in _OF_COLLECTIVES and _has_end(verdict) for verdict in verdicts)
        or any(
            verdict.evidence == "group_only" and all(rank.inside for rank in verdict.case.live)
            for verdict in verdicts
        )
    )


def _has_end(verdict: Verdict) -> bool:
    """Whether a rank is in a collective whose end is known: others may have left long ago."""
    calls = [call for rank in verdict.case.live for call in rank.inside.values()]
    return not calls or any(call.op != "unknown" for call in calls)


def _is_stuck(charge: Charge, verdicts: Sequence[Verdict]) -> bool:
    """Whether a rank is surely at fault and stuck.

    A rank that only sleeps, or waits for a sleeping child, may have a slow tool.  A dead rank
    counts only if another rank visibly waits; otherwise the others may restart without it.
    """
    rank, live = charge.rank, (one for verdict in verdicts for one in verdict.case.live)
    if charge.evidence == "process_gone":
        stuck = any(map(_waits, live))
    else:
        sleeps = not rank.inside and rank.kernel_waits == (KernelWait(""),)
        stuck = rank.wait_class is WaitClass.GONE or not sleeps
    return charge.confidence == "sure" and stuck


def _waits(rank: RankFacts) -> bool:
    """Whether a rank is inside a collective, or the kernel shows that it waits for somebody."""
    return bool(rank.inside) or any(not wait.nobody for wait in rank.kernel_waits)


def works(verdict: Verdict, job: Sequence[RankFacts]) -> bool:
    """Whether a rank at fault, or a rank that others may wait for, is at work or makes marks.

    Marks that lead to no step are no work.  If no rank is surely at fault, or it only retries, the
    role may wait for another role whose GPU computes.
    """
    case = verdict.case
    retries = {id(charge.rank) for charge in case.charges if charge.evidence == "livelock"}
    holding = [rank for at in case.holding if id(rank := case.live[at]) not in retries]
    if any(rank.late_seconds is not None for rank in case.workers) or any(
        rank.marks for rank in holding
    ):
        return True
    sure = any(one.confidence == "sure" and id(one.rank) not in retries for one in case.charges)
    return not sure and any(rank.computes for rank in job if rank.role != verdict.role)


def _recovered(case: Case, shown: Stages) -> float:
    """The patience from the longest pause that the job has recovered from, in these stages or
    outside of stages."""
    stages = {rank.stage or "" for rank in case.live} | {"idle"}
    longest = max(shown.get(stage, NOTHING_SHOWN).longest_seconds for stage in stages)
    return min(RECOVERED_FACTOR * longest, RECOVERED_SECONDS)


def _suspects(verdict: Verdict, job: Sequence[RankFacts]) -> Sequence[RankFacts]:
    """The named ranks; else the ranks of other roles that others wait for by the kernel, or that
    may fill the awaited queue; else all live ranks."""
    awaited = {(wait.role, wait.rank) for wait in verdict.case.outside}
    others = [
        rank
        for rank in job
        if (rank.role, rank.rank) in awaited and rank.wait_class is not WaitClass.GONE
    ]
    if any(wait.through for wait in verdict.case.outside):
        others += [rank for rank in job if rank.role != verdict.role and _is_busy(rank)]
    return verdict.culprits or others or verdict.case.live


def _busy(
    verdict: Verdict, ranks: Sequence[RankFacts], shown: Stages, limits: Limits
) -> list[float]:
    """For how long the suspects may keep a core busy outside of collectives, because they may
    compute.  The first rollouts of a job have a long tail."""
    if not all(map(_is_busy, ranks)):
        return []
    stages = [rank.stage or "" for rank in ranks if rank.stage not in (*OUTSIDE, *LONG_STAGES)]
    untaught = any(
        not shown.get(one, NOTHING_SHOWN).taught(len(verdict.case.live)) for one in stages
    )
    return [limits.untaught_busy_seconds] if untaught and verdict.charges else []


def _is_busy(rank: RankFacts) -> bool:
    return rank.wait_class in _BUSY and not rank.inside


def _boundless(case: Case) -> bool:
    """Whether the role may have nothing to do, like a server without requests: it records only
    collectives, no rank waits for a group to be made, and no rank is missing.  For ranks without
    records this is unknown."""
    return case.bare or (
        any(rank.unmarked for rank in case.live)
        and not any("init" in rank.inside for rank in case.live)
        and not case.lacks_somebody
    )
