"""Puts a verdict into the one sentence that a status page begins with."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from stagewatch.core.findings import Finding
from stagewatch.core.words import printable
from stagewatch.judgement import words
from stagewatch.judgement.case import Charge
from stagewatch.judgement.drawing.svg import svg
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.sentence import outsiders, sentence
from stagewatch.judgement.waits import waits_of

_LONGEST = 400
"""Characters of a headline; jobs name their stages and files as they like."""


def findings_of(verdicts: Sequence[Verdict], ranks: Sequence[RankFacts]) -> list[Finding]:
    """The findings on the verdicts in which something is wrong, for the status page."""
    now = time.time()
    ranks_of: defaultdict[str, list[RankFacts]] = defaultdict(list)
    for rank in ranks:
        ranks_of[rank.job_id].append(rank)
    jobs: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        jobs.setdefault(verdict.job_id, []).append(verdict)
    found = []
    for of_job in jobs.values():
        wrong = [verdict for verdict in of_job if verdict.wrong]
        for nth, verdict in enumerate(wrong):
            found.append(
                Finding(
                    verdict.job_id,
                    verdict.role,
                    printable(_headline(verdict, ranks_of[verdict.job_id], now), _LONGEST),
                    printable(sentence(verdict), 3 * _LONGEST),
                    tuple((rank.job_id, rank.role, str(rank.rank)) for rank in verdict.culprits),
                    picture=None if nth else partial(_picture, of_job),
                )
            )
    return found


def _picture(verdicts: Sequence[Verdict]) -> str:
    return svg(verdicts, waits_of(verdicts))


def _headline(verdict: Verdict, ranks: Sequence[RankFacts], now: float) -> str:
    """`Job 540 has hung since 08:03 UTC: rank 3 left the loop early, in cleanup, at fit.py:212`."""
    roles = {rank.role for rank in ranks if rank.job_id == verdict.job_id}
    job = f"Job {verdict.job_id}" + (f" ({verdict.role})" if len(roles) > 1 else "")
    ages = [
        rank.progress_age_seconds
        for rank in ranks
        if (rank.job_id, rank.role) == (verdict.job_id, verdict.role)
        and rank.progress_age_seconds is not None
        and rank not in verdict.culprits
    ] or [rank.progress_age_seconds or 0.0 for rank in verdict.culprits]
    hangs = "has waited" if verdict.early else "has hung"
    happened = hangs if verdict.stalled else "has stopped"
    if verdict.evidence in ("process_gone", "missing") and not verdict.stalled:
        happened = "has lost a process"
    elif ages:
        happened += f" since {_clock(now - min(ages), now)}"
    if verdict.charges:
        return f"{job} {happened}: {_blame(verdict.charges)}."
    if verdict.evidence == "call":
        mine = [
            rank
            for rank in ranks
            if (rank.job_id, rank.role) == (verdict.job_id, verdict.role) and rank.call
        ]
        them = "all its ranks are" if len(mine) > 1 else "its rank is"
        return f"{job} {happened}: {them} {words.calling(mine)}."
    if verdict.evidence == "outsider":
        return f"{job} {happened}: {outsiders(verdict.case)}."
    if verdict.evidence == "other_role" and len(roles) == 1:
        return f"{job} {happened}: a rank has just left."
    return f"{job} {happened}: {words.NOBODY.get(verdict.evidence, verdict.evidence)}."


def _blame(charges: Sequence[Charge]) -> str:
    """The charged ranks in words: who did what, in which stage, at which line of code."""
    first, rank = charges[0], charges[0].rank
    several = len(charges) > 1
    whom = words.numbers([charge.rank for charge in charges])
    stage = "" if rank.stage == "idle" else "/".join(filter(None, (rank.stage, rank.substage)))
    line = f", at {rank.stack.frame}" if rank.stack.frame else ""
    if call := words.calling([charge.rank for charge in charges]):
        line += f", {call}"
    stands = f"{f', in {stage}' if stage else ''}{line}"
    does = words.BEEN.get(rank.wait_class, rank.wait_class.value)
    if first.evidence == "awaited":
        is_in = f"; {'they are' if several else 'it is'} in {stage}{line}" if stage else line
        return f"the others wait for {whom} in {words.place(first.group, first.op)}{is_in}"
    if first.outlasts:
        wait = "wait" if several else "waits"
        where = f"{words.operation(first.op)} of {first.group}"
        return f"the others have left, and {whom} still {wait} in {where}{stands}"
    if first.evidence == "mismatch":
        own = words.own_call(rank, first.group)
        calls = f"the calls of {whom} do" if several else f"the {own} of {whom} does"
        return f"{calls} not match the others' {first.op} of {first.group}{stands}"
    if first.evidence == "stage_differs" and stage:
        return f"{whom} alone {'are' if several else 'is'} in {stage}{line}"
    if first.evidence == "role_differs":
        whole = ", all of this one" if several else ""
        return f"the other roles wait for {whom}{whole}, in {stage}{line}"
    if first.evidence != "odd_one_out":
        return f"{whom} {words.meaning(first, several=several)}{stands}"
    return f"{whom} alone {'are' if several else 'is'} {does}{stands}"


def _clock(moment: float, now: float) -> str:
    """The time of day in UTC, with the date unless it is today's."""
    then, today = time.gmtime(moment), time.gmtime(now)
    day = "" if then[:3] == today[:3] else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M UTC", then)
