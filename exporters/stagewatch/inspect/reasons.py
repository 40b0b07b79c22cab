"""Explains step by step why the judge decided as it did on each role of a job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.core.words import duration
from stagewatch.judgement.case import Case, Charge
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.fault import accuse
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.limits import (
    ABSENT_SECONDS,
    DYING_SECONDS,
    EARLY_SECONDS,
    LASTING_SECONDS,
    MIN_SECONDS,
    Limits,
)
from stagewatch.judgement.memory import Moment, State
from stagewatch.judgement.roles import beside
from stagewatch.judgement.wait_words import name, whom
from stagewatch.judgement.words import NOBODY, departed, excused, meaning, operation

Ranks = Sequence[RankFacts]


@dataclass(frozen=True, slots=True)
class Reason:
    """One step: a question, its answer in short, and what the answer rests on."""

    question: str
    answer: str
    grounds: tuple[str, ...] = ()


def reasons(moment: Moment, states: Sequence[State], limits: Limits) -> dict[str, list[Reason]]:
    """The steps by role."""
    roles: dict[str, list[RankFacts]] = {}
    for rank in moment.ranks:
        roles.setdefault(rank.role, []).append(rank)
    shared = beside(roles)
    alone = {role: accuse(ranks, shared[role]) for role, ranks in roles.items()}
    verdicts = [state.verdict for state in states]
    told = {}
    for state in states:
        verdict = state.verdict
        own = alone.get(verdict.role, verdict.case)
        steps = [_stalled(verdict)]
        if verdict.stalled or verdict.charges or own.gone_is_fault:
            steps.append(_evidence(own))
        if (len(states) > 1 and len(steps) > 1) or verdict.evidence == "other_role":
            steps.append(_beside(verdict, own, verdicts, alone))
        steps.append(_woken(state, moment.time, limits))
        told[verdict.role] = steps
    return told


# ---- Is it stalled? -----------------------------------------------------------------------------


def _stalled(verdict: Verdict) -> Reason:
    question, live = "Is it stalled?", verdict.case.live
    if not live:
        return Reason(question, "No: none of its ranks lives any more")
    late = [rank for rank in live if rank.overdue]
    if verdict.stalled:
        marking = [rank for rank in live if not rank.overdue]
        grounds = [_silence(late)] if late else []
        if marking:
            grounds.append(
                f"{whom(marking, roles=False)}, which holds the others up, marks progress but "
                "completes no step"
            )
        grounds.append(
            "nothing excuses that: no debugger, no announced pause, no work that may take so long, "
            "no stage that is long by nature, no suspension"
        )
        return Reason(question, "Yes", tuple(grounds))
    grounds = [excused(verdict.excuse)] if verdict.excuse else []
    within = [rank for rank in live if not rank.overdue]
    if verdict.excuse:
        return Reason(question, f"No: {verdict.excuse.kind.replace('_', ' ')}", tuple(grounds))
    if within:
        ages = [rank.progress_age_seconds for rank in within if rank.progress_age_seconds]
        last = f", the last progress {duration(min(ages))} ago" if ages else ""
        count = f"all {len(live)} ranks" if len(within) == len(live) else whom(within, roles=False)
        be = "is" if len(within) == 1 else "are"
        return Reason(question, "No", (f"{count} {be} within the budget of the stage{last}",))
    return Reason(question, "No", ("the job has announced a pause",))


def _silence(late: Ranks) -> str:
    ages = [rank.progress_age_seconds or 0.0 for rank in late]
    budgets = [rank.budget_seconds or 0.0 for rank in late]
    allowed = duration(min(budgets))
    if max(budgets) > min(budgets):
        allowed += f" to {duration(max(budgets))}"
    who, its = f"{len(late)} ranks have", "their"
    if len(late) == 1:
        who, its = f"rank {late[0].rank} has", "its"
    return f"{who} made no progress for {duration(min(ages))}; {its} stage may take {allowed}"


# ---- Who is at fault? ---------------------------------------------------------------------------

_DIED, _GRAPH, _LEFT, _BLOCKED, _STAGE, _STACK = range(6)
_TITLES = (
    "who has died",
    "collectives, messages and steps",
    "who has left, and nodes that are lost",
    "who is stopped or waits for storage",
    "who is in another stage",
    "stacks",
)
"""Kinds of evidence, the strongest first."""


_MOST = 4
"""The most lines on charged ranks; for the rest, only their number is shown."""


def _evidence(own: Case) -> Reason:
    """The kinds of evidence in a role, and which one counted, before other roles were weighed."""
    counted = _kind(own.charges) if own.charges else len(_TITLES)
    grounds = []
    for kind, title in enumerate(_TITLES):
        if kind == counted:
            lines = _charged(own.charges)
            grounds += [f"{title}: {line}  <- this counts" for line in lines[:_MOST]]
            if lines[_MOST:]:
                grounds.append(f"{title}: and {len(lines) - _MOST} more like these")
        elif kind < counted:
            grounds.append(f"{title}: {_nobody(kind, own)}")
    if counted + 1 < len(_TITLES):
        grounds.append("weaker evidence was not needed")
    if own.charges:
        who = whom([charge.rank for charge in own.charges], roles=False)
        answer = f"{who[:1].upper()}{who[1:]}"
    else:
        answer = f"None of them: {NOBODY.get(own.unnamed, own.unnamed)}"
    return Reason("Which of its ranks is at fault?", answer, tuple(grounds))


def _kind(charges: Sequence[Charge]) -> int:
    first = charges[0]
    if first.evidence == "process_gone":
        return _DIED
    if first.outlasts or first.evidence in ("missing", "node_lost", "not_started"):
        return _LEFT
    if first.evidence in ("mismatch", "livelock", "awaited") or any(one.group for one in charges):
        return _GRAPH
    if first.stopped or first.evidence == "io_blocked":
        return _BLOCKED
    return _STACK if first.evidence == "stack_differs" else _STAGE


def _charged(charges: Sequence[Charge]) -> list[str]:
    """Lines on the charged ranks, one for all with the same evidence."""
    alike: dict[tuple[str, ...], list[RankFacts]] = {}
    for charge in charges:
        what = charge.evidence, charge.group, charge.op, charge.confidence
        alike.setdefault(what, []).append(charge.rank)
    lines = []
    for (evidence, group, op, confidence), ranks in alike.items():
        where = f", in {operation(name(op))} of {name(group)}" if group else ""
        does = meaning(Charge(ranks[0], evidence, group, op), several=len(ranks) > 1)
        lines.append(f"{whom(ranks, roles=False)} {does}{where} ({evidence}, {confidence})")
    return lines


def _nobody(kind: int, own: Case) -> str:
    """Why a kind of evidence named nobody; `nobody` if no more is known."""
    if kind == _DIED and own.gone:
        who = whom(own.gone, roles=False)
        return f"{who}, but the job no longer counts on it"
    if kind == _LEFT and own.left:
        return f"{departed(own.left)}, and nobody visibly waits for them"
    if kind == _GRAPH and own.edges:
        return "whoever others wait for is within its budget, waits too, or is one of several"
    return "nobody"


# ---- Beside the other roles ---------------------------------------------------------------------


def _beside(
    verdict: Verdict, own: Case, verdicts: Sequence[Verdict], alone: dict[str, Case]
) -> Reason:
    question = "Do the other roles of the job show more?"
    mine = {charge.rank.rank for charge in own.charges}
    final = {charge.rank.rank for charge in verdict.charges}
    if verdict.charges and final != mine:
        why = _AS_A_WHOLE.get(verdict.evidence, _AS_A_WHOLE["role_differs"])
        return Reason(question, f"Yes: {_summary(verdict)}", (why,))
    if mine and not final and _dying(verdicts):
        grounds = (f"a rank has died within the last {duration(DYING_SECONDS)}, others may follow",)
        return Reason(question, "Yes: nobody is named yet", grounds)
    if verdict.evidence == "other_role":
        return Reason(question, "Yes: it gives way", _outweighed(verdict, own, verdicts))
    if not verdict.charges:
        return Reason(question, "No")
    rivals = [one for role, one in alone.items() if role != verdict.role and one.charges]
    rest = "their evidence is weaker" if rivals else "they have no evidence"
    return Reason(question, f"No: {rest}")


_AS_A_WHOLE = {
    "role_differs": "all other roles wait, or are between two stages, and no other rank is at "
    "fault",
    "stage_behind": "its peers have completed that stage, and no rank of the other roles is at "
    "fault",
    "alone": "no other live rank of the job could hold it up",
    **dict.fromkeys(
        ("missing", "process_gone", "node_lost"),
        "ranks of other roles wait for dead members, or may wait for these",
    ),
}
"""Why a role is at fault as a whole, although nothing within it shows so, by evidence."""


def _dying(verdicts: Sequence[Verdict]) -> bool:
    return any(
        rank.dead_seconds is not None and rank.dead_seconds < DYING_SECONDS
        for verdict in verdicts
        for rank in verdict.ranks
    )


def _outweighed(verdict: Verdict, own: Case, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Why the evidence of a role gives way to that of other roles."""
    grounds = [
        f"the kernel shows {wait.how} that rank {wait.rank} of {name(wait.role)} must end"
        for wait in own.outside
        if wait.rank is not None
    ][:4]
    if own.charges:
        who = whom([charge.rank for charge in own.charges], roles=False)
        if own.awaits_role:
            grounds.append(
                f"{who} is asleep, and may wait for another role through a queue that nothing shows"
            )
        elif not own.sure:
            grounds.append(f"how and where {who} waits is weak evidence")
    grounds += _left_just_now(verdicts)
    late = [rank.late_seconds for rank in own.live if rank.late_seconds is not None]
    if own.charges and not own.sure and late and min(late) < EARLY_SECONDS:
        grounds.append(
            f"all have been overdue for only {duration(min(late))}; another role may show more "
            f"within {duration(EARLY_SECONDS)}"
        )
    for one in verdicts:
        if one.role != verdict.role and one.charges:
            grounds.append(f"{name(one.role)} shows more: {_summary(one)}")
        elif one.role != verdict.role and one.stalled:
            told = NOBODY.get(one.evidence, one.evidence)
            grounds.append(f"{name(one.role)} makes no progress either: {told}")
        elif one.role != verdict.role and (still := _stays(one)):
            grounds.append(f"{name(one.role)} {still}")
    return tuple(grounds)


def _stays(other: Verdict) -> str:
    """Why ranks may wait for a role that is not stalled; empty if nothing shows so."""
    if other.case.never_marked:
        return "has never marked progress"
    ages = [rank.step_age_seconds for rank in other.case.live]
    least = min((age or 0.0 for age in ages), default=0.0)
    return f"has made no step for {duration(least)}" if least > MIN_SECONDS else ""


def _left_just_now(verdicts: Sequence[Verdict]) -> list[str]:
    return [
        f"rank {rank.rank} of {name(one.role)} left {duration(rank.left_seconds or 0.0)} ago: "
        f"others may start to wait for it within {duration(ABSENT_SECONDS)}"
        for one in verdicts
        for rank in one.case.left
        if (rank.left_seconds or 0.0) <= ABSENT_SECONDS
    ][:4]


def _summary(verdict: Verdict) -> str:
    """The ranks of a role at fault, why, and with which confidence."""
    first, several = verdict.charges[0], len(verdict.charges) > 1
    who = whom(verdict.culprits, roles=False)
    does = meaning(first, several=several)
    return f"{who} {does} ({first.evidence}, {first.confidence})"


# ---- Does it page? ------------------------------------------------------------------------------


def _woken(state: State, now: float, limits: Limits) -> Reason:
    question = "Is somebody woken?"
    if state.since is None:
        return Reason(question, "No: it is not suspected")
    lasted = now - state.since
    at = time.strftime("%F %T UTC", time.gmtime(state.since))
    grounds = [
        f"suspected since {at}, for {duration(lasted)}; {duration(LASTING_SECONDS)} must pass"
    ]
    patience, silent = state.patience_seconds, state.silent_seconds
    if patience is None:
        grounds.append("it records only collectives, and may have nothing to do")
        return Reason(question, "No: this job pages nobody", tuple(grounds))
    waits = f"its patience is {duration(patience)}{_why_patient(state, patience, limits)}"
    grounds.append(f"silent for {'no time' if silent is None else duration(silent)}; {waits}")
    return Reason(question, "Yes" if state.paged else "Not yet", tuple(grounds))


def _why_patient(state: State, patience: float, limits: Limits) -> str:
    """The reason for the present patience: the one that gives the longest."""
    stages = {rank.stage for rank in state.verdict.case.live}
    long = {limits.long(stage): stage for stage in stages if limits.long(stage)}
    if patience in long:
        return f", because {long[patience]} may take so long"
    return {
        limits.page_seconds: ", the minimum",
        limits.young_seconds: ", because the job is young, or may wait for a process that is slow "
        "to answer",
        limits.working_seconds: ", because the rank at fault is at work",
        limits.untaught_busy_seconds: ", because it keeps a core busy in a stage of unknown "
        "length, or asks a process that answers",
    }.get(patience, ", by the longest pause that the job has recovered from")
