"""Judges the ranks of each job on this node: has it hung or stopped, and which rank is at fault?

It first decides who would be at fault, then whether the ranks are stalled, or abstains.  The
recording rules (`alerts/stalls.rules.yaml`) judge a whole cluster in the same order; this verdict
is for a person who could only log in to the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stagewatch.core.words import duration
from stagewatch.judgement.case import Case, Charge
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.fault import accuse
from stagewatch.judgement.limits import (
    ABSENT_SECONDS,
    EARLY_SECONDS,
    LEFT_BEFORE_SECONDS,
    MIN_SECONDS,
    PATIENCE_SECONDS,
    SETTLE_SECONDS,
    STILL_SECONDS,
    WORKING_SECONDS,
    YOUNG_SECONDS,
)
from stagewatch.judgement.roles import Beside, beside
from stagewatch.judgement.words import (
    absence,
    accusation,
    calling,
    departed,
    doing,
    groups,
    places,
    who,
)
from stagewatch.ranks.wait_class import WaitClass

Ranks = Sequence[RankFacts]

_IDLE = "no stage is open, all are idle"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with one role of a job, as far as this node shows."""

    job_id: str
    role: str
    stalled: bool
    """Whether no rank makes progress any more."""
    evidence: str
    """Of the first charge; without one, of what nobody can be named by: `mismatch`, `missing`,
    `cycle`, `call`, `group_only`, `other_role`; or `process_gone` where no rank lives, `raised`
    (stopped since an exception), or empty where nothing is wrong or the facts do not suffice."""
    charges: tuple[Charge, ...]
    sentence: str

    @property
    def culprits(self) -> tuple[RankFacts, ...]:
        """The ranks at fault."""
        return tuple(charge.rank for charge in self.charges)

    @property
    def wrong(self) -> bool:
        """Whether somebody should act."""
        return bool(self.evidence)


def judge(ranks: Ranks) -> list[Verdict]:
    """A verdict for each role of each job on this node."""
    jobs: dict[str, dict[str, list[RankFacts]]] = {}
    for rank in sorted(ranks, key=lambda rank: (rank.job_id, rank.role)):
        jobs.setdefault(rank.job_id, {}).setdefault(rank.role, []).append(rank)
    return [verdict for roles in jobs.values() for verdict in _judge_job(roles)]


def _judge_job(roles: dict[str, list[RankFacts]]) -> list[Verdict]:
    """A verdict for each role: weak evidence gives way to what another role shows."""
    shared = beside(roles)
    cases = {role: accuse(ranks, shared[role]) for role, ranks in roles.items()}
    stuck = {
        role: stalled(case, [rank for other in roles if other != role for rank in roles[other]])
        for role, case in cases.items()
    }
    if any(stuck.values()):
        cases |= _absent_roles(cases)
    counts = {
        role
        for role, case in cases.items()
        if case.charges and (stuck[role] or case.gone_is_fault or not case.live)
    }
    gives_way = _give_way(roles, cases, stuck, counts)
    gives_way |= {role for role in roles if stuck[role] and _awaited(cases[role], shared)}
    at_fault = {} if counts - gives_way or _just_left(roles) else _roles_at_fault(cases, stuck)
    verdicts = []
    for role, case in cases.items():
        job = f"job {roles[role][0].job_id}" + (f" ({role})" if len(roles) > 1 else "")
        mine = case
        if role in at_fault:
            mine = replace(case, charges=at_fault[role], nobody="")
        elif role in gives_way or (stuck[role] and at_fault):
            mine = replace(case, charges=(), nobody="other_role")
        if case.live and role in at_fault:
            told = _stuck(job, mine, _failure(roles[role]))
            verdicts.append(replace(told, stalled=stuck[role]))
        elif case.live or case.gone or mine.charges:
            verdicts.append(_judge_role(roles[role], mine, job, stuck[role]))
    return verdicts


def _awaited(case: Case, shared: Mapping[str, Beside]) -> bool:
    """Whether nobody of the role is at fault, and a rank is waited for in a group of several."""
    return not case.charges and any(one.awaited for one in shared.values())


def _give_way(
    roles: Mapping[str, Ranks],
    cases: Mapping[str, Case],
    stuck: Mapping[str, bool],
    counts: set[str],
) -> set[str]:
    """The roles whose evidence is weaker than what another role shows.

    `counts`: those whose charges count.
    """
    sure = any(cases[role].sure for role in counts)
    silence = min((_silence(cases[role].live) for role in roles if stuck[role]), default=0.0)
    holds_others = any(
        case.stands or case.stays if stuck[role] else case.steps_in_place(silence) or case.untold
        for role, case in cases.items()
    )
    unlike = any(case.waits_unlike and stuck[role] for role, case in cases.items())
    calls = any(case.nobody == "call" and stuck[role] for role, case in cases.items())
    give = set()
    for role, case in cases.items():
        early = _just_left(roles) or (len(roles) > 1 and _late(case.live) < EARLY_SECONDS)
        weak = bool(case.charges) and (sure or early) and not case.sure
        awaits = (holds_others and case.awaits_role) or (unlike and case.waits_alike)
        if (stuck[role] and (weak or awaits)) or (calls and case.nobody == "group_only"):
            give.add(role)
    rest = counts - give
    tied = {role for role in rest if cases[role].awaits_role} if len(rest) > 1 else set()
    return give | tied


def _absent_roles(cases: Mapping[str, Case]) -> dict[str, Case]:
    """The roles that none lives of, which others may wait for: ranks that have left are at fault,
    or else, where nobody else of the job is absent, those that have died; also where nobody is at
    fault but ranks that may wait for them, and some are in no collective of known size."""
    absent = {role: case for role, case in cases.items() if not case.live}
    if any(case.misses and case.sees_all for case in cases.values()):
        for role, case in absent.items():
            long = case.absent_long if case.sees_all else ()
            absent[role] = replace(case, charges=tuple(Charge(rank, "missing") for rank in long))
    missed = any(case.misses for case in cases.values())
    if all(case.awaits_role or not case.charges for case in cases.values()):
        missed |= any(case.free for case in cases.values())
    if missed and not any(case.lacks_somebody for case in (*cases.values(), *absent.values())):
        for role, case in absent.items():
            died = tuple(Charge(rank, "process_gone") for rank in case.gone)
            absent[role] = replace(case, charges=died)
    return absent


def _roles_at_fault(
    cases: Mapping[str, Case], stuck: Mapping[str, bool]
) -> dict[str, tuple[Charge, ...]]:
    """The only role that stands in a stage as a whole, or makes marks without steps, or those that
    have left, while all others wait or are between two stages of theirs; none where another may be
    at fault."""
    live = {role: case for role, case in cases.items() if case.live}
    silence = min((_silence(case.live) for role, case in live.items() if stuck[role]), default=0.0)
    chosen = {role: "role_differs" for role in live if stuck[role] and cases[role].stands_whole}
    chosen |= {r: "livelock" for r in live if not stuck[r] and cases[r].retries(silence)}
    others = [role for role in live if role not in chosen]
    early = any(stuck[role] and _late(case.live) < EARLY_SECONDS for role, case in live.items())
    lost = any(case.unseen or case.gone or case.left for case in live.values())
    only_wait = all(
        cases[role].only_waits
        if stuck[role]
        else _idles(cases[role]) and replace(cases[role], charges=()).only_waits
        for role in others
    )
    if early or lost or not only_wait or len(chosen) > 1 or not any(stuck.values()):
        return {}
    absent = {role: case for role, case in cases.items() if not case.live}
    for role, evidence in chosen.items():
        charges = tuple(Charge(rank, evidence) for rank in cases[role].live)
        return {role: charges} if others and not absent else {}
    return _roles_that_left(absent, silence + LEFT_BEFORE_SECONDS)


def _roles_that_left(absent: Mapping[str, Case], seconds: float) -> dict[str, tuple[Charge, ...]]:
    """Those that have left as a whole within so long."""
    if any(case.charges or case.gone or not case.sees_all for case in absent.values()):
        return {}
    return {
        role: tuple(Charge(rank, "missing") for rank in left)
        for role, case in absent.items()
        if (left := [rank for rank in case.absent_long if (rank.left_seconds or 0.0) <= seconds])
    }


def _idles(case: Case) -> bool:
    """Whether all are overdue, and asleep outside of every stage."""
    return bool(case.live) and all(rank.overdue for rank in case.live) and excuse(case) == _IDLE


def _late(live: Ranks) -> float:
    """How long all of them have been overdue that are."""
    return min((rank.late_seconds for rank in live if rank.late_seconds is not None), default=0.0)


def _silence(live: Ranks) -> float:
    """How long ago the last progress was of those that are overdue."""
    return min((rank.progress_age_seconds or 0.0 for rank in live if rank.overdue), default=0.0)


def _just_left(roles: Mapping[str, Ranks]) -> bool:
    """Whether a rank left the job so lately that others may still come to wait for it."""
    return any(
        rank.left_seconds is not None and rank.left_seconds < ABSENT_SECONDS
        for ranks in roles.values()
        for rank in ranks
    )


def _judge_role(ranks: Ranks, case: Case, job: str, stuck: bool) -> Verdict:
    job_id, role = ranks[0].job_id, ranks[0].role
    failure = _failure(ranks)
    live, gone = case.live, case.gone
    if not live and any(charge.evidence == "missing" for charge in case.charges):
        sentence = f"{job}: {departed(case.absent_long)}; the job's other roles wait{failure}"
        return Verdict(job_id, role, False, "missing", case.charges, sentence)
    if not live:
        whole = "its only rank here is" if len(gone) == 1 else f"all its {len(gone)} ranks here are"
        missed = "; the job's other roles wait" if case.charges else ""
        sentence = f"{job}: {whole} gone{missed}{failure}"
        return Verdict(job_id, role, False, "process_gone", case.charges, sentence)
    if case.gone_is_fault:
        still = f", without progress for {_since(live)}" if _silent(live) else ""
        sentence = (
            f"{job}: {who(gone)} ended without closing its record; {doing(live)}{still}{failure}"
        )
        return Verdict(job_id, role, stuck, "process_gone", case.charges, sentence)
    if stuck:
        return _stuck(job, case, failure)
    excused = excuse(case)
    if failed(live) and _silent(live) and excused in ("", _IDLE):
        return Verdict(job_id, role, False, "raised", (), f"{job}: {_stopped(ranks, live)}")
    return Verdict(job_id, role, False, "", (), f"{job}: {_going(live, excused)}{failure}")


def _stuck(job: str, case: Case, failure: str) -> Verdict:
    live = case.live
    job_id, role = live[0].job_id, live[0].role
    if case.charges:
        tell = absence if case.lacks_somebody else accusation
        sentence = f"{job}: {tell(case, _since, _step)}"
        evidence = case.charges[0].evidence
        return Verdict(job_id, role, True, evidence, case.charges, sentence + failure)
    just_left = len(case.left) > len(case.absent_long)
    also = f"; {departed(case.left)}" if case.left else ""
    why = {
        "mismatch": f"ranks of one group are in different collectives: {groups(live)}",
        "missing": f"they wait for ranks that are not here ({case.absent}): {groups(live)}{also}",
        "other_role": (
            f"{departed(case.left)}, and they may wait for that"
            if just_left
            else "another role of the job may hold it up"
        ),
        "cycle": f"ranks wait for each other: {groups(live)}",
        "call": f"{'all ranks are' if len(live) > 1 else 'it is'} {calling(live)}",
        "group_only": (
            "no rank of this node stands out, so suspect the transport, a GPU or a rank of "
            "another node"
        ),
    }[case.nobody]
    since = f"no progress for {_since(live)} at step {_step(live)}"
    where = f"; {frames}" if (frames := places(live)) else ""
    sentence = f"{job}: {since}: {doing(live)}; {why}{where}{failure}"
    return Verdict(job_id, role, True, case.nobody, (), sentence)


def _going(live: Ranks, excused: str) -> str:
    """The sentence on ranks that do not hang; one that is parked between two steps progresses."""
    known = [rank for rank in live if rank.progress_age_seconds is not None]
    held = any(rank.wait_class is WaitClass.TRACED for rank in live)
    if known and not held and not failed(live) and all(map(_moved, known)):
        moved = f"in progress at step {_step(known)}, last progress {_since(known)} ago"
        return f"{moved}; at this moment {doing(live)}"
    if excused:
        return f"{doing(live)}: {excused}"
    if not known:
        return f"{doing(live)}: no rank keeps a stage record, so progress cannot be judged"
    overdue = sum(rank.overdue for rank in known)
    if overdue:
        return (
            f"{doing(live)}: {overdue} of {len(live)} overdue, the others still within their budget"
        )
    return f"{doing(live)}: step {_step(known)}, last progress {_since(known)} ago"


def _moved(rank: RankFacts) -> bool:
    """Whether the rank has just made progress."""
    seconds = rank.progress_age_seconds
    return seconds is not None and seconds < MIN_SECONDS and not rank.overdue


def stalled(case: Case, others: Ranks) -> bool:
    """Whether every live rank is overdue, or at fault although it makes marks of progress, without
    an excuse, while none of the job's `others` is in a long stage or has announced a pause: the
    rest may wait for that, and a moment longer unless it is in such a stage itself."""
    return (
        bool(case.live)
        and all(rank.overdue or case.holds_up(rank) for rank in case.live)
        and not any(rank.expected_seconds for rank in case.live)
        and not excuse(case)
        and not any(_takes_long(rank) for rank in others)
        and (not any(map(_lingers, others)) or any(map(_lingers, case.live)))
    )


def excuse(case: Case) -> str:
    """Why what looks like a stall is none; empty without such a reason."""
    live = case.live
    working = YOUNG_SECONDS if case.young else WORKING_SECONDS
    for rank in live:
        late = rank.late_seconds
        if rank.wait_class is WaitClass.TRACED:
            return f"a debugger holds {who((rank,))}"
        if rank.expected_seconds:
            return f"{who((rank,))} has announced a pause"
        if late is not None and late < working and case.may_work(rank):
            return f"{who((rank,))} is at work on something long"
        if _takes_long(rank):
            return f"{who((rank,))} is in {rank.stage}, which may take long"
    if live and all(rank.wait_class is WaitClass.STOPPED for rank in live):
        return "all ranks are stopped, the job is suspended"
    counts_steps = any(rank.step_age_seconds is not None for rank in live)
    if not (case.gone_is_fault or (counts_steps and not case.staged)) and all(
        rank.stage == "idle" and rank.wait_class is WaitClass.PARKED and not rank.inside
        for rank in live
    ):
        return _IDLE
    return ""


def _takes_long(rank: RankFacts) -> bool:
    """Whether other ranks, of other roles too, may wait for what this one does."""
    if rank.wait_class is WaitClass.GONE:
        return False
    long = rank.stage in PATIENCE_SECONDS and rank.progress_age_seconds is not None
    return bool(rank.expected_seconds) or (long and not rank.overdue)


def _lingers(rank: RankFacts) -> bool:
    """Whether the rank is in a long stage, and beyond its budget there only for a moment."""
    late = rank.late_seconds
    return rank.stage in PATIENCE_SECONDS and late is not None and late < STILL_SECONDS


def failed(ranks: Ranks) -> bool:
    """Whether no rank has completed anything since the last exception that one raised."""
    raised = [rank.first_failure_age_seconds for rank in ranks]
    last = min((seconds for seconds in raised if seconds is not None), default=None)
    moved = [rank.progress_age_seconds for rank in ranks]
    since = min((seconds for seconds in moved if seconds is not None), default=None)
    return last is not None and since is not None and since >= last - SETTLE_SECONDS


def _silent(live: Ranks) -> bool:
    """Whether every rank is overdue, or is idle and not just between two steps."""
    return bool(live) and all(
        rank.overdue or (rank.stage == "idle" and (rank.progress_age_seconds or 0.0) >= MIN_SECONDS)
        for rank in live
    )


def _raised(ranks: Ranks) -> list[RankFacts]:
    """The ranks that raised an exception, the first first: the others usually follow from it."""
    raised = [rank for rank in ranks if rank.first_failure_age_seconds is not None]
    return sorted(raised, key=lambda rank: rank.first_failure_time or 0.0)


def _failure(ranks: Ranks) -> str:
    """The end of a sentence that tells the first failure, if there was one."""
    first = _first_failure(ranks)
    return f"; first failure: {first}" if first else ""


def _first_failure(ranks: Ranks) -> str:
    """Which rank raised first, what, in which stage and when; empty if none did."""
    raised = _raised(ranks)
    if not raised:
        return ""
    first = raised[0]
    ago = duration(first.first_failure_age_seconds or 0.0)
    return f"{who((first,))}, {first.first_failure}, {ago} ago"


def _stopped(ranks: Ranks, live: Ranks) -> str:
    """The sentence on ranks that do nothing any more since an exception."""
    count = len(_raised(ranks))
    raised = f"{count} of {len(ranks)} ranks raised an exception, first"
    if count == 1:
        raised = "an exception was raised by"
    none = "none has" if len(live) > 1 else "it has not"
    return (
        f"stopped at step {_step(live)}: {raised} {_first_failure(ranks)}; {doing(live)}, and "
        f"{none} completed anything for {_since(live)}"
    )


def _since(ranks: Ranks) -> str:
    """How long ago the last progress of any of them was."""
    return duration(min((rank.progress_age_seconds or 0.0 for rank in ranks), default=0.0))


def _step(ranks: Ranks) -> str:
    """The furthest step of any of them."""
    steps = [rank.step for rank in ranks if rank.step is not None]
    return str(max(steps)) if steps else "unknown"
