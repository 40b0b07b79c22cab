"""Puts a verdict into a sentence for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stagewatch.core.words import whole
from stagewatch.judgement.case import Case
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.judge import Verdict, failed, silent
from stagewatch.judgement.limits import MIN_SECONDS
from stagewatch.judgement.words import (
    BEEN,
    DOING,
    MEANING,
    NOBODY,
    SUSPECT,
    calling,
    departed,
    doing,
    excused,
    groups,
    meaning,
    numbers,
    operation,
    own_call,
    place,
    places,
    sleeps_in,
    who,
)
from stagewatch.ranks.wait_class import WaitClass

Ranks = Sequence[RankFacts]


def sentence(verdict: Verdict) -> str:
    """What is wrong, who does what, for how long, and why somebody is at fault."""
    job = f"job {verdict.job_id}" + (f" ({verdict.role})" if verdict.of_several else "")
    case = verdict.case
    if not case.live:
        text = _lifeless(verdict)
    elif case.gone_is_fault:
        text = _died(case)
    elif verdict.charges:
        text = _absence(case) if case.lacks_somebody else _accusation(case, early=verdict.early)
    elif verdict.stalled:
        text = _unnamed(case, early=verdict.early)
    elif verdict.evidence == "raised":
        return f"{job}: {_stopped(verdict.ranks, case.live)}"
    else:
        text = _going(case.live, excused(verdict.excuse) if verdict.excuse else "")
    return f"{job}: {text}{_failure(verdict.ranks)}"


def _lifeless(verdict: Verdict) -> str:
    case = verdict.case
    waits = "; the job's other roles wait" if verdict.charges else ""
    if verdict.evidence == "node_lost":
        return lost_nodes(case)
    if verdict.evidence == "missing":
        return f"{departed(case.absent_long)}{waits}"
    gone = case.gone or case.left
    whole = "its only rank here is" if len(gone) == 1 else f"all its {len(gone)} ranks here are"
    return f"{whole} gone{waits}"


def _died(case: Case) -> str:
    still = f", without progress for {_since(case.live)}" if silent(case.live) else ""
    evidence = MEANING["process_gone"][len(case.gone) > 1]
    return f"{who(case.gone)} {evidence}; {doing(case.live)}{still}"


def _unnamed(case: Case, *, early: bool) -> str:
    """What is known where nobody can be named."""
    live = case.live
    just_left = len(case.left) > len(case.absent_long)
    also = f"; {departed(case.left)}" if case.left else ""
    known = {
        "mismatch": f"ranks of one group are in different collectives: {groups(live)}",
        "missing": f"they wait for ranks that are not here ({_absent(case)}): {groups(live)}{also}",
        "other_role": f"{departed(case.left)}, and they may wait for that" if just_left else "",
        "cycle": f"ranks wait for each other: {groups(live)}",
        "outsider": outsiders(case),
        "call": f"{'all ranks are' if len(live) > 1 else 'it is'} {calling(live)}",
    }
    why = known.get(case.unnamed) or NOBODY.get(case.unnamed, NOBODY["group_only"])
    why = why.removesuffix(SUSPECT) if early else why
    where = f"; {frames}" if (frames := places(live)) else ""
    return f"{_still(live)}: {doing(live)}; {why}{where}"


def outsiders(case: Case) -> str:
    """Which processes that are not ranks the role waits for."""
    awaited = {who: wait.how for wait in case.outside if (who := wait.outsider)}
    waits = [f"{process} in {how}" for process, how in sorted(awaited.items())]
    return f"{'they wait' if len(case.live) > 1 else 'it waits'} for {' and '.join(waits[:4])}"


def _absent(case: Case) -> str:
    """The numbers of ranks that are not here, as far as the size of the world is known."""
    numbers, count = case.absent_numbers(8)
    shown = ", ".join(map(str, numbers)) + (f" and {count - 8} more" if count > 8 else "")
    return shown or "how many is not known"


def _going(live: Ranks, excused: str) -> str:
    """The sentence on ranks that do not hang; one that is parked between two steps progresses."""
    known = [rank for rank in live if rank.progress_age_seconds is not None]
    held = any(rank.wait_class is WaitClass.TRACED for rank in live)
    if known and not held and not failed(live) and all(map(_moved, known)):
        return f"in progress{_at_step(known)}"
    if excused:
        return f"{doing(live)}: {excused}"
    if not known:
        return f"{doing(live)}: no rank keeps a stage record, so progress cannot be judged"
    overdue = sum(rank.overdue for rank in known)
    if overdue:
        return (
            f"{doing(live)}: {overdue} of {len(live)} overdue, the others still within their budget"
        )
    return f"last progress {_since(known)} ago{_at_step(known)}: {doing(live)}"


def _moved(rank: RankFacts) -> bool:
    """Whether the rank has just made progress."""
    seconds = rank.progress_age_seconds
    return seconds is not None and seconds < MIN_SECONDS and not rank.overdue


def _absence(case: Case) -> str:
    """What those that live do, for how long, and who has left them."""
    first = case.charges[0]
    if first.evidence == "node_lost":
        return f"{_still(case.live)}: {lost_nodes(case)}"
    if first.evidence == "not_started":
        culprits = [charge.rank for charge in case.charges]
        never = meaning(first, several=len(culprits) > 1)
        return f"{_still(case.live)}: {doing(case.live)}; {numbers(culprits)} {never}"
    left = departed(case.absent_long)
    if case.bare:
        return f"{_still(case.live)}: {doing(case.live)}; {left}, and they may wait for that"
    if not first.outlasts:
        does = f"{doing(case.live)}, {groups(case.live)}"
        return f"{_still(case.live)}: {does}; they wait for others, but {left}"
    culprits = [charge.rank for charge in case.charges]
    have = "have" if len(culprits) > 1 else "has"
    wait = "wait" if len(culprits) > 1 else "waits"
    return (
        f"{who(culprits)} {have} been {BEEN[first.rank.wait_class]} for {_since(culprits)}"
        f"{_at_step(culprits)} and {wait} in {operation(first.op)} of {first.group}, to which "
        f"nobody else comes: {left}"
    )


def lost_nodes(case: Case) -> str:
    """Which nodes do not answer any more, with which ranks."""
    nodes: dict[str, list[RankFacts]] = {}
    for charge in case.charges:
        nodes.setdefault(charge.rank.node, []).append(charge.rank)
    clauses = [
        f"node {node or 'without a name'} does not answer, with {numbers(ranks)}"
        for node, ranks in sorted(nodes.items())
    ]
    waits = "the others wait" if case.live else "the job's other roles wait"
    return f"{'; '.join(clauses)}; {waits}"


def _accusation(case: Case, *, early: bool) -> str:
    """The sentence on charged ranks: in which state they are, how long and where, why they are at
    fault (early on, that others wait for them), and what the others do."""
    charges = case.charges
    culprits = [charge.rank for charge in charges]
    named = {id(rank) for rank in culprits}
    others = [rank for rank in case.live if id(rank) not in named]
    first, several = charges[0], len(charges) > 1
    it, they = ("them", "they") if several else ("it", "it")
    holds = "hold" if several else "holds"
    if first.confidence == "likely":
        holds = f"{'seem' if several else 'seems'} to hold"
    have = "have" if several else "has"
    does = f"{have} been" if early else f"{holds} up the job:"
    state = BEEN[first.rank.wait_class]
    channel = sleeps_in(first.rank.wait_channel)
    if first.rank.wait_class in (WaitClass.PARKED, WaitClass.IO) and channel:
        state += f" in {channel}"
    text = f"{who(culprits)} {does} {state} for {_since(culprits)}{_at_step(culprits)}"
    if first.rank.stack.frame:
        text += f", at {first.rank.stack.frame}"
    if first.rank.gpu_kernel:
        text += f", its GPU in {first.rank.gpu_kernel}"
    if call := calling(culprits):
        text += f", {call}"
    where = place(first.group, first.op)
    if first.evidence == "mismatch":
        own = own_call(first.rank, first.group)
        calls = "their calls do" if several else f"its {own} does"
        text += f"; {calls} not match the others' {where}"
        return f"{text}{_also(others)}"
    if first.evidence not in ("awaited", "odd_one_out", "io_blocked"):
        text += f"; {they} {meaning(first, several=several)}"
    awaited = first.evidence == "awaited"
    if not (first.group or awaited):
        return f"{text}{_also(others)}"
    lacks = f", which {they} {have} not entered" if first.group and awaited else ""
    return f"{text}; {_waiting(others, it)} in {where}{lacks}"


def _also(others: Ranks) -> str:
    """What the others do."""
    return f"; {doing(others)}" if others else ""


def _waiting(others: Ranks, it: str) -> str:
    """`7 ranks wait for it, spinning,` or `8 ranks wait for it (7 spin, 1 polls)`."""
    if not others:
        return f"the others wait for {it}"
    first, counts = others[0], Counter(rank.wait_class for rank in others)
    them = f"rank {first.rank} waits" if len(others) == 1 else f"{len(others)} ranks wait"
    if len(counts) == 1:
        return f"{them} for {it}, {BEEN.get(first.wait_class, first.wait_class.value)},"
    how = ", ".join(f"{count} {DOING[kind][count > 1]}" for kind, count in counts.most_common())
    return f"{them} for {it} ({how})"


def _raised(ranks: Ranks) -> list[RankFacts]:
    """The ranks that raised an exception, the first first: the others usually follow from it."""
    raised = [rank for rank in ranks if rank.first_failure_age_seconds is not None]
    return sorted(raised, key=lambda rank: rank.first_failure_time or 0.0)


def _failure(ranks: Ranks) -> str:
    """The end of a sentence: the first failure, if there was one. If a rank has died without an
    exception of its own, it is not called the first, because those of its peers follow from the
    death."""
    first = _first_failure(ranks)
    killed = any(
        rank.wait_class is WaitClass.GONE and rank.left_seconds is None and not rank.first_failure
        for rank in ranks
    )
    return f"; {'also raised' if killed else 'first failure'}: {first}" if first else ""


def _first_failure(ranks: Ranks) -> str:
    """Which rank raised first, what, in which stage and when; empty if none did."""
    raised = _raised(ranks)
    if not raised:
        return ""
    first = raised[0]
    ago = whole(first.first_failure_age_seconds or 0.0)
    what = first.first_failure.removesuffix(" in idle")
    return f"{who((first,))}, {what}, {ago} ago"


def _stopped(ranks: Ranks, live: Ranks) -> str:
    """The sentence on ranks that do nothing any more since an exception."""
    count = len(_raised(ranks))
    raised = f"{count} of {len(ranks)} ranks raised an exception, first"
    if count == 1:
        raised = "an exception was raised by"
    none = "none has" if len(live) > 1 else "it has not"
    return (
        f"stopped{_at_step(live)}: {raised} {_first_failure(ranks)}; {doing(live)}, and "
        f"{none} completed anything for {_since(live)}"
    )


def _still(live: Ranks) -> str:
    return f"no progress for {_since(live)}{_at_step(live)}"


def _since(ranks: Ranks) -> str:
    """How long ago the last progress of any of them was."""
    return whole(min((rank.progress_age_seconds or 0.0 for rank in ranks), default=0.0))


def _at_step(ranks: Ranks) -> str:
    """` at step 220`, the furthest of any of them; empty where none is known."""
    steps = [rank.step for rank in ranks if rank.step is not None]
    return f" at step {max(steps)}" if steps else ""
