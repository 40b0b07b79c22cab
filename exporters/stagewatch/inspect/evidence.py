"""Takes the stacks of all ranks of a job in which something is wrong, and shows shared ones
once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from stagewatch.host.procfs import Procfs
from stagewatch.inspect.children import children_of, with_children
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.words import numbers
from stagewatch.ranks.model import Rank
from stagewatch.ranks.records import Life
from stagewatch.ranks.stacks import NO_PROCESS, Stack, StackTaker, Take, stack
from stagewatch.ranks.waits.blocking_calls import with_call

APART_SECONDS = 1.0
"""Time between the two looks at a stack; the user waits for it."""
MAX_RANKS = 64
"""The most ranks whose stacks are taken."""


def gather(
    ranks: Iterable[Rank],
    facts: Sequence[RankFacts],
    verdicts: Sequence[Verdict],
    taker: StackTaker,
    sleep: Callable[[float], None] = time.sleep,
) -> list[RankFacts]:
    """The facts, with stacks of the live ranks of every job in which something is wrong.

    A stack from an incident stays if none can be taken now."""
    wrong = {verdict.job_id for verdict in verdicts if verdict.wrong}
    live = [rank for rank in ranks if rank.job_id in wrong and rank.life is Life.ALIVE]
    return take(live, facts, taker, sleep)


def take(
    live: Sequence[Rank],
    facts: Sequence[RankFacts],
    taker: StackTaker,
    sleep: Callable[[float], None] = time.sleep,
) -> list[RankFacts]:
    """The facts with the stacks of these live ranks, up to `MAX_RANKS`."""
    live = live[:MAX_RANKS]
    if not live:
        return list(facts)
    children = children_of(live, Procfs())
    asked = [*live, *(child.process for child in children)]
    first = taker.take(asked)
    sleep(APART_SECONDS)
    second = taker.take(asked)
    none = Take(problem=NO_PROCESS)
    taken = {
        rank.key: with_children(
            _with_call(first.get(rank.pid, none), second.get(rank.pid, none)),
            [child for child in children if child.rank == rank.key],
            (first, second),
        )
        for rank in live
    }
    return [_with(fact, taken.get((fact.job_id, fact.role, str(fact.rank)))) for fact in facts]


def _with_call(*takes: Take) -> Stack:
    """The stack of some looks, with its blocking library call in the name of its first thread."""
    found = with_call(stack(*takes), takes)
    if not (found.call and found.threads):
        return found
    (name, frames), *others = found.threads
    return replace(found, threads=((f"{name}, in {found.call}", frames), *others))


def _with(fact: RankFacts, taken: Stack | None) -> RankFacts:
    return (
        fact
        if taken is None or (taken.problem and fact.stack.group)
        else replace(fact, stack=taken)
    )


def text(
    facts: Sequence[RankFacts], verdicts: Sequence[Verdict], asked: RankFacts | None = None
) -> str:
    """Each stack with its ranks as text: the requested one first, then those of the suspects."""
    lines = []
    for why, ranks in sorted(_shared(facts, verdicts), key=lambda one: asked not in one[1]):
        first = ranks[0].stack
        moves = "" if first.problem or all(rank.stack.still for rank in ranks) else ", moving"
        who = f"job {ranks[0].job_id} {numbers(ranks)} ({ranks[0].role}), pid {ranks[0].pid}"
        lines += ["", f"{who}{moves}, {why}:"]
        lines += [f"  {first.problem}"] if first.problem else []
        for name, frames in first.threads:
            lines += [f"  thread {name}", *(f"    {frame}" for frame in frames)]
    return "\n".join(lines)


def as_json(facts: Sequence[RankFacts], verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """The stacks for programs, one object for each rank."""
    return [
        {
            "job_id": fact.job_id,
            "role": fact.role,
            "rank": fact.rank,
            "pid": fact.pid,
            "why": why,
            **asdict(fact.stack),
        }
        for why, ranks in _shared(facts, verdicts)
        for fact in ranks
    ]


def _shared(
    facts: Sequence[RankFacts], verdicts: Sequence[Verdict]
) -> list[tuple[str, list[RankFacts]]]:
    """The ranks by stack, with the label `suspect`, `other`, or `majority` of a role."""
    suspects = [rank for verdict in verdicts for rank in verdict.culprits]
    shared: dict[tuple[str, str, bool, str, str], list[RankFacts]] = {}
    for fact in facts:
        if fact.stack.group or fact.stack.problem:
            key = (fact.job_id, fact.role, fact in suspects, fact.stack.group, fact.stack.problem)
            shared.setdefault(key, []).append(fact)
    most: dict[tuple[str, str], int] = {}
    for (job_id, role, suspect, *_), ranks in shared.items():
        if not suspect:
            most[job_id, role] = max(most.get((job_id, role), 0), len(ranks))
    told = []
    for (job_id, role, suspect, *_), ranks in shared.items():
        majority = not suspect and most.get((job_id, role)) == len(ranks)
        if majority:
            most[job_id, role] = 0
        told.append(("suspect" if suspect else "majority" if majority else "other", ranks))
    return sorted(told, key=lambda one: ("suspect", "other", "majority").index(one[0]))


def why_none(verdicts: Sequence[Verdict]) -> str:
    """Why no stack was taken."""
    if any(verdict.wrong for verdict in verdicts):
        return "No stacks: no process of a job with a problem lives here."
    return "No stacks: they are taken only if something is wrong with a job, and nothing is."
