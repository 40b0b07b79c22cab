"""When a job that seems to hang pages somebody: how long it may be silent before."""

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
"""Words of `Case.unnamed` for waits in collectives alone."""


def patience_seconds(
    verdict: Verdict,
    job: Sequence[RankFacts],
    shown: Stages,
    *,
    worked: bool,
    sure: bool,
    limits: Limits,
) -> float | None:
    """How long a role may be silent before a page, in seconds; `None` if it never pages.

    `job`: the ranks of all roles.  `shown`: the gaps between marks of this role, by stage.
    `worked`: a suspect was at work lately.  `sure`: the job surely hangs.
    """
    case = verdict.case
    if _may_wait_for_ever(case):
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


def marked_early(
    verdicts: Sequence[Verdict],
    shown: Mapping[tuple[str, str], Stages],
    limits: Limits = DEFAULT,
) -> list[Verdict]:
    """The verdicts with `early` set, for a single look without earlier ones.

    `shown`: the gaps between marks by stage, for each job and role.
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
    """Whether a stalled role has been silent for longer than its patience."""
    return verdict.stalled and None not in (silent, patience) and (silent or 0) > (patience or 0)


def surely_hangs(verdicts: Sequence[Verdict]) -> bool:
    """Whether a job surely hangs, so that no tool or slow server may still bring it on.

    Either a rank is surely stuck, an awaited process has ended, or all waits are in
    collectives."""
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
    """Whether a rank is in a collective whose end is recorded, or none is in any: a rank may long
    have left an operation without a name."""
    calls = [call for rank in verdict.case.live for call in rank.inside.values()]
    return not calls or any(call.op != "unknown" for call in calls)


def _is_stuck(charge: Charge, verdicts: Sequence[Verdict]) -> bool:
    """Whether a charge is `sure` and its rank does not just sleep or wait for a child, as with a
    slow tool.

    A dead rank counts only if a rank is seen to wait: else the others may be about to begin again
    without it."""
    rank, live = charge.rank, (one for verdict in verdicts for one in verdict.case.live)
    if charge.evidence == "process_gone":
        stuck = any(map(_waits, live))
    else:
        sleeps = not rank.inside and rank.kernel_waits == (KernelWait(""),)
        stuck = rank.wait_class is WaitClass.GONE or not sleeps
    return charge.confidence == "sure" and stuck


def _waits(rank: RankFacts) -> bool:
    """Whether a rank is inside a collective, or the kernel shows that it waits for somebody."""
    return bool(rank.inside) or any(not wait.waits_for_nobody for wait in rank.kernel_waits)


def works(verdict: Verdict, job: Sequence[RankFacts]) -> bool:
    """Whether a suspect is at work: it does work, or it makes marks that lead to steps.

    If no rank is surely at fault, apart from those that make no step, a computing GPU of another
    role counts too."""
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
    """The patience by the longest pause that the role has recovered from, in its present stages or
    outside of all."""
    stages = {rank.stage or "" for rank in case.live} | {"idle"}
    longest = max(shown.get(stage, NOTHING_SHOWN).longest_seconds for stage in stages)
    return min(RECOVERED_FACTOR * longest, RECOVERED_SECONDS)


def _suspects(verdict: Verdict, job: Sequence[RankFacts]) -> Sequence[RankFacts]:
    """The charged ranks; else ranks of other roles that are awaited, as the kernel shows, or that
    may fill an awaited queue; else all live ranks of the role."""
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
    """The patience with charged suspects that all keep a core busy outside of collectives, in a
    stage whose length is unknown: they may compute, as the first rollouts have a long tail."""
    if not all(map(_is_busy, ranks)):
        return []
    stages = [rank.stage or "" for rank in ranks if rank.stage not in (*OUTSIDE, *LONG_STAGES)]
    untaught = any(
        not shown.get(one, NOTHING_SHOWN).taught(len(verdict.case.live)) for one in stages
    )
    return [limits.untaught_busy_seconds] if untaught and verdict.charges else []


def _is_busy(rank: RankFacts) -> bool:
    return rank.wait_class in _BUSY and not rank.inside


def _may_wait_for_ever(case: Case) -> bool:
    """Whether the role may simply have nothing to do, like a server without requests.

    It records only collectives, no rank waits for a group to be made, and none is absent.  Ranks
    without records count too, since nobody knows what they wait for."""
    return case.bare or (
        any(rank.unmarked for rank in case.live)
        and not any("init" in rank.inside for rank in case.live)
        and not case.lacks_somebody
    )
