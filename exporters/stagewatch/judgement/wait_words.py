"""Puts waits into words: a sentence for a list, and a label of two lines for an arrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from stagewatch.core import words
from stagewatch.core.words import duration, printable
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.graph import Kind
from stagewatch.judgement.waits import CALL, GONE, MAYBE, Wait
from stagewatch.record import POINT_TO_POINT

MAX_NAME = 40
"""Characters of a name that a job has given."""
_FEW = 4
_RANGES = 6


def name(text: str) -> str:
    """A name that a job has given, fit to print."""
    return printable(text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…")


def ranges(numbers: Iterable[int]) -> str:
    """`0-6, 8`: the first `_RANGES` ranges of these numbers."""
    return words.ranges(numbers, _RANGES, between=", ")


def whom(ranks: Sequence[RankFacts], *, roles: bool) -> str:
    """`rank 3`, `ranks 1, 2` or `7 ranks (0-6)`; with their role where the job has several."""
    by_role: dict[str, list[int]] = {}
    for rank in ranks:
        by_role.setdefault(rank.role, []).append(rank.rank)
    return " and ".join(
        _counted(numbers, f" of {name(role)}" if roles else "") for role, numbers in by_role.items()
    )


def _counted(numbers: Sequence[int], of: str) -> str:
    if len(numbers) == 1:
        return f"rank {numbers[0]}{of}"
    if len(numbers) <= _FEW:
        return f"ranks {', '.join(map(str, sorted(numbers)))}{of}"
    return f"{len(numbers)} ranks{of} ({ranges(numbers)})"


def what(op: str, sequence: int | None, group: str) -> str:
    """`all_reduce 220 of world`."""
    if group == POINT_TO_POINT:
        return f"a {name(op)}"
    if not group:
        return name(op)
    number = "" if sequence is None else f" {sequence}"
    return f"{'collective' if op == 'unknown' else name(op)}{number} of {name(group)}"


def inside(rank: RankFacts) -> str:
    """All that a rank is inside of; empty if it is in nothing."""
    return ", ".join(
        (f"{name(call.op)} with rank {call.peer}" if call.peer is not None else name(call.op))
        if group == POINT_TO_POINT
        else what(call.op, rank.collectives.get(group), group)
        for group, call in sorted(rank.inside.items())
    )


def wait_sentence(wait: Wait, *, roles: bool) -> str:
    """A wait as a sentence.  `roles`: the job has several, so that ranks need their role."""
    say = _SAID[Kind.UNSEEN.value] if wait.outsider and wait.kind != CALL else _SAID[wait.kind]
    return say(wait, whom(wait.waiters, roles=roles), whom(wait.targets, roles=roles))


def label(wait: Wait) -> tuple[str, str]:
    """What they wait in, and what is the matter with it: two short lines."""
    if wait.kind == MAYBE:
        return "may wait", "no evidence why"
    if wait.kind == CALL:
        longest = max(rank.call[1] for rank in wait.waiters if rank.call)
        return f"call of {name(wait.op)}", f"for up to {duration(longest)}"
    message = wait.group == POINT_TO_POINT
    first = name(wait.op) if message else what(wait.op, wait.sequence, wait.group)
    if not wait.targets:
        return first, wait.outsider or _LABELS[wait.kind]
    count = len(wait.targets)
    them = f"rank {wait.targets[0].rank}" if count == 1 else f"{count} ranks"
    return first, _LABELS[wait.kind].format(them=them, do="does" if count == 1 else "do")


_LABELS = {
    Kind.NOT_COME.value: "not entered by {them}",
    Kind.LEFT.value: "left by {them}",
    Kind.UNLIKE.value: "{them} {do} not fit",
    Kind.DIFFER.value: "{them} {do} not fit, or they",
    Kind.PEER.value: "not answered by {them}",
    Kind.KERNEL.value: "held by {them}",
    Kind.NOT_LAUNCHED.value: "not launched by {them}",
    Kind.NOT_BEGUN.value: "not begun on the GPU of {them}",
    Kind.NO_BYTES.value: "{them} {do} not exchange bytes",
    Kind.AMBIGUOUS.value: "two groups of one name",
    Kind.TOGETHER.value: "all have come",
    Kind.UNSEEN.value: "not in sight",
    GONE: "{them} not alive any more",
}


def _plural(ranks: Sequence[RankFacts], one: str, several: str) -> str:
    return several if len(ranks) > 1 else one


def _not_come(wait: Wait, who: str, them: str) -> str:
    wait_in = f"{_plural(wait.waiters, 'waits', 'wait')} in"
    where = what(wait.op, wait.sequence, wait.group)
    but = f"; {wait.witness} shows {them} in it, too" if wait.witness else ""
    return f"{who} {wait_in} {where} for {them}, which {_reached(wait)}{but}"


def _reached(wait: Wait) -> str:
    """How far those that are waited for have come in the group."""
    have = _plural(wait.targets, "has", "have")
    counts = [rank.collectives.get(wait.group, 0) for rank in wait.targets]
    low, high = min(counts), max(counts)
    calls = Counter(
        rank.inside[wait.group].op for rank in wait.targets if wait.group in rank.inside
    )
    if calls and calls.total() == len(wait.targets) and low == high:
        still = _plural(wait.targets, "is still in", "are still in")
        return f"{still} {what(calls.most_common(1)[0][0], low, wait.group)}"
    if high == 0:
        return f"{have} entered none"
    return f"{have} entered {low if low == high else f'{low} to {high}'}"


def _left(wait: Wait, who: str, them: str) -> str:
    are = _plural(wait.waiters, "is", "are")
    have = _plural(wait.targets, "has", "have")
    where = what(wait.op, wait.sequence, wait.group)
    other = inside(wait.targets[0]) if wait.targets else ""
    on = f" for {other}" if other else ""
    return f"{who} {are} still in {where}, which {them} {have} left{on}"


def _unlike(wait: Wait, who: str, them: str) -> str:
    are = _plural(wait.waiters, "is", "are")
    them += f" {_plural(wait.targets, 'is', 'are')}"
    return f"{who} {are} in {_does(wait, wait.waiters)}, but {them} in {_does(wait, wait.targets)}"


def _differ(wait: Wait, who: str, them: str) -> str:
    return f"{_unlike(wait, who, them)}; nobody can tell which side is wrong"


def _does(wait: Wait, ranks: Sequence[RankFacts]) -> str:
    """What these ranks are in, with what may distinguish them from the other side."""
    first = ranks[0]
    call = first.inside.get(wait.group)
    if call is None:
        return inside(first) or "no collective"
    size = "" if call.elements is None else f" with {call.elements} elements"
    step = f" at step {first.step}" if call.op == "unknown" and first.step is not None else ""
    return f"{what(call.op, first.collectives.get(wait.group), wait.group)}{size}{step}"


def _peer(wait: Wait, who: str, them: str) -> str:
    sends = "send" in wait.op
    verb = _plural(wait.waiters, *(("sends to", "send to") if sends else _RECEIVES))
    target = wait.targets[0]
    call = target.inside.get(POINT_TO_POINT)
    if call and call.peer is not None:
        does = "sends to" if "send" in call.op else "receives from"
        return f"{who} {verb} {them}, which {does} rank {call.peer}"
    if other := inside(target):
        return f"{who} {verb} {them}, which {_plural(wait.targets, 'is', 'are')} in {other}"
    return f"{who} {verb} {them}, which {'receives from' if sends else 'sends to'} nobody"


_RECEIVES = ("receives from", "receive from")


def _unseen(wait: Wait, who: str, _: str) -> str:
    if wait.group == POINT_TO_POINT:
        verbs = ("sends to", "send to") if "send" in wait.op else _RECEIVES
        return f"{who} {_plural(wait.waiters, *verbs)} {wait.outsider}"
    where = what(wait.op, wait.sequence, wait.group)
    return f"{who} {_plural(wait.waiters, 'waits', 'wait')} in {where} for {wait.outsider}"


def _kernel(wait: Wait, who: str, them: str) -> str:
    return f"{who} {_plural(wait.waiters, 'waits', 'wait')} in {name(wait.op)} for {them}"


def _below(wait: Wait, who: str, them: str) -> str:
    """A wait below the program; if the program says something else, the sentence has both."""
    where = what(wait.op, wait.sequence, wait.group)
    proxy = "'s proxy" if wait.kind == Kind.NO_BYTES.value and len(wait.waiters) == 1 else ""
    lacks = {"bytes": "bytes of ", "buffer": "a buffer of "}.get(wait.lacks, "")
    over = f" over {name(wait.over)}" if wait.over else ""
    has, is_ = _plural(wait.targets, "has", "have"), _plural(wait.targets, "is", "are")
    whose = _plural(wait.targets, "whose GPU has", "whose GPUs have")
    which = {
        Kind.NOT_LAUNCHED.value: f", which {has} not launched it",
        Kind.NOT_BEGUN.value: f", {whose} not begun it",
    }.get(wait.kind, "")
    ranks = *wait.waiters, *wait.targets
    entered = which and any(
        all(group in rank.inside and rank.inside[group].op == wait.op for rank in ranks)
        for group in wait.targets[0].inside
    )
    but = (
        f", though by {_plural(wait.targets, 'its program it', 'their programs they')} {is_} in it"
    )
    shown_by = f" ({wait.witness})" if wait.witness else ""
    return (
        f"{who}{proxy} {_plural(wait.waiters, 'waits', 'wait')} in {where} for {lacks}{them}{over}"
        f"{which}{shown_by}{but if entered else ''}"
    )


def _ambiguous(wait: Wait, who: str, _: str) -> str:
    where = what(wait.op, wait.sequence, wait.group)
    return (
        f"{who} {_plural(wait.waiters, 'is', 'are')} in {where}; more ranks use that name than the "
        "group has members, so that nobody can tell who waits for whom"
    )


def _together(wait: Wait, who: str, _: str) -> str:
    if wait.group == POINT_TO_POINT:
        return f"{who} exchange messages, and each peer is there"
    where = what(wait.op, wait.sequence, wait.group)
    return f"{who} {_plural(wait.waiters, 'is', 'are')} in {where} with all its members"


def _gone(wait: Wait, who: str, them: str) -> str:
    where = what(wait.op, wait.sequence, wait.group)
    first = wait.targets[0]
    if first.node_lost:
        why = _plural(wait.targets, "whose node does not answer", "whose nodes do not answer")
    elif first.left_seconds is None:
        why = f"which {_plural(wait.targets, 'has', 'have')} died"
    else:
        why = f"which left {duration(first.left_seconds)} ago"
    return f"{who} {_plural(wait.waiters, 'waits', 'wait')} in {where} for {them}, {why}"


def _call(wait: Wait, who: str, _: str) -> str:
    longest = duration(max(rank.call[1] for rank in wait.waiters if rank.call))
    inside_of = _plural(wait.waiters, "is inside a call", "are inside calls")
    upto = "for" if len(wait.waiters) == 1 else "for up to"
    return f"{who} {inside_of} of {name(wait.op)}, {upto} {longest}"


def _maybe(wait: Wait, who: str, them: str) -> str:
    stand = _plural(wait.waiters, "stands", "stand")
    return f"{who} {stand} still and may wait for {them}; no evidence shows why"


_SAID: dict[str, Callable[[Wait, str, str], str]] = {
    Kind.NOT_COME.value: _not_come,
    Kind.LEFT.value: _left,
    Kind.UNLIKE.value: _unlike,
    Kind.DIFFER.value: _differ,
    Kind.PEER.value: _peer,
    Kind.UNSEEN.value: _unseen,
    Kind.KERNEL.value: _kernel,
    Kind.NOT_LAUNCHED.value: _below,
    Kind.NOT_BEGUN.value: _below,
    Kind.NO_BYTES.value: _below,
    Kind.AMBIGUOUS.value: _ambiguous,
    Kind.TOGETHER.value: _together,
    GONE: _gone,
    CALL: _call,
    MAYBE: _maybe,
}
