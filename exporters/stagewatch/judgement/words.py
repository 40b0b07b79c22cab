"""Puts into words which ranks there are, and what they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from stagewatch.core.words import duration
from stagewatch.judgement.case import Case
from stagewatch.judgement.facts import Inside, RankFacts
from stagewatch.ranks.wait_class import WaitClass

DOING: dict[str, tuple[str, str]] = {
    WaitClass.SPIN: ("spins", "spin"),
    WaitClass.POLL: ("polls", "poll"),
    WaitClass.COMPUTE: ("computes", "compute"),
    WaitClass.PARKED: ("is parked", "are parked"),
    WaitClass.IO: ("waits for storage", "wait for storage"),
    WaitClass.STOPPED: ("is stopped", "are stopped"),
    WaitClass.TRACED: ("is held by a debugger", "are held by a debugger"),
    WaitClass.GONE: ("is gone", "are gone"),
    WaitClass.UNKNOWN: ("is unclear", "are unclear"),
}
"""What one rank of a wait class does, and what several do."""
BEEN = {
    WaitClass.SPIN: "spinning",
    WaitClass.POLL: "polling",
    WaitClass.COMPUTE: "computing",
    WaitClass.PARKED: "parked",
    WaitClass.IO: "waiting for storage",
    WaitClass.STOPPED: "stopped by a signal",
    WaitClass.UNKNOWN: "without progress",
}
_KINDS = ("futex", "epoll", "nfs", "rpc", "fuse", "pipe", "nanosleep", "select", "poll")


def doing(ranks: Sequence[RankFacts]) -> str:
    """How many ranks do what."""
    counts = Counter(rank.wait_class for rank in ranks).most_common()
    return ", ".join(
        f"{count} {'ranks' if count > 1 else 'rank'} {DOING[kind][count > 1]}"
        for kind, count in counts
    )


def who(ranks: Sequence[RankFacts]) -> str:
    """The ranks by number and process."""
    if len(ranks) == 1:
        return f"rank {ranks[0].rank} (pid {ranks[0].pid})"
    shown = ", ".join(f"{rank.rank} (pid {rank.pid})" for rank in ranks[:4])
    return f"ranks {shown}" + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


def numbers(ranks: Sequence[RankFacts]) -> str:
    """The ranks by number alone."""
    shown = ", ".join(str(rank.rank) for rank in ranks[:4])
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {shown}{more}"


def places(ranks: Sequence[RankFacts]) -> str:
    """Who is where in the user's own code, the rarest place first; empty where nobody looked."""
    by_frame: dict[str, list[RankFacts]] = {}
    for rank in ranks:
        if rank.stack.frame:
            by_frame.setdefault(rank.stack.frame, []).append(rank)
    parts = [
        f"{numbers(those)} at {frame}"
        for frame, those in sorted(by_frame.items(), key=lambda one: len(one[1]))
    ]
    return "; ".join(parts[:4])


def sleeps_in(channel: str) -> str:
    """A wait channel by kind, since kernels rename functions (futex_wait_queue, futex_do_wait)."""
    return next((kind for kind in _KINDS if kind in channel), channel)


def groups(ranks: Sequence[RankFacts]) -> str:
    """Who is inside which collective."""
    inside: dict[str, list[RankFacts]] = {}
    for rank in ranks:
        for group, call in rank.inside.items():
            inside.setdefault(collective(group, call), []).append(rank)
    return "; ".join(f"{numbers(those)} in {what}" for what, those in sorted(inside.items()))


def collective(group: str, call: Inside) -> str:
    """A collective that a rank is inside of, as `all_reduce of world`."""
    peer = f" with rank {call.peer}" if call.peer is not None else ""
    return f"{operation(call.op)} of {group}{peer}"


def calling(ranks: Sequence[RankFacts]) -> str:
    """`inside its call of search for 42 s`; empty unless all of them are inside calls.

    Of several names it tells the one that most ranks are in, with the longest of these calls.
    """
    calls = [rank.call for rank in ranks if rank.call is not None]
    if not calls or len(calls) < len(ranks):
        return ""
    name, count = Counter(name for name, _ in calls).most_common(1)[0]
    longest = duration(max(seconds for own, seconds in calls if own == name))
    if len(calls) == 1:
        return f"inside its call of {name} for {longest}"
    most = "" if count == len(calls) else f", {count} of them"
    return f"inside their calls{most} of {name} for up to {longest}"


def operation(name: str) -> str:
    """What a collective does, where that is known."""
    return "a collective" if name == "unknown" else name


_WHY = {
    "left_loop_early": ("it left the loop early", "they left the loop early"),
    "livelock": ("it makes marks but no steps", "they make marks but no steps"),
    "stack_differs": ("its stack differs from all others", "their stacks differ from all others"),
    "stage_differs": ("it is in a stage of its own", "they are in a stage of their own"),
    "role_differs": ("all other roles wait", "the whole role stands there, and all others wait"),
}


Tell = Callable[[Sequence[RankFacts]], str]
"""Says of ranks since when, or at which step, they make no progress."""


def departed(ranks: Sequence[RankFacts]) -> str:
    """Which ranks have left, and when."""
    last = duration(min(rank.left_seconds or 0.0 for rank in ranks))
    when = f"left, the last one {last} ago" if len(ranks) > 1 else f"left {last} ago"
    return f"{numbers(ranks)} {when}"


def absence(case: Case, since: Tell, step: Tell) -> str:
    """What those that live do, for how long, and who has left them."""
    first, left = case.charges[0], departed(case.absent_long)
    if not first.outlasts:
        still = f"no progress for {since(case.live)} at step {step(case.live)}"
        return f"{still}: {doing(case.live)}, {groups(case.live)}; they wait for others, but {left}"
    culprits = [charge.rank for charge in case.charges]
    have = "have" if len(culprits) > 1 else "has"
    wait = "wait" if len(culprits) > 1 else "waits"
    return (
        f"{who(culprits)} {have} been {BEEN[first.rank.wait_class]} for {since(culprits)} at step "
        f"{step(culprits)} and {wait} in {operation(first.op)} of {first.group}, to which nobody "
        f"else comes: {left}"
    )


def accusation(case: Case, since: Tell, step: Tell) -> str:
    """What the others do, what those at fault do, for how long, and why they are at fault."""
    live, charges = case.live, case.charges
    culprits = [charge.rank for charge in charges]
    others = [rank for rank in live if not any(rank is culprit for culprit in culprits)]
    first, several = charges[0], len(charges) > 1
    state = BEEN[first.rank.wait_class]
    channel = sleeps_in(first.rank.wait_channel)
    if first.rank.wait_class in (WaitClass.PARKED, WaitClass.IO) and channel:
        state += f" in {channel}"
    sentence = (
        f"{doing(others)}, {who(culprits)} {'have' if several else 'has'} been {state} for "
        f"{since(culprits)} at step {step(culprits)}"
    )
    if first.rank.stack.frame:
        sentence += f", at {first.rank.stack.frame}"
    if call := calling(culprits):
        sentence += f", {call}"
    it = "them" if several else "it"
    where = f"{operation(first.op)} of {first.group}"
    if first.evidence == "mismatch":
        return f"{sentence}, and {'do' if several else 'does'} not fit the others' {where}"
    if first.evidence == "awaited":
        have = "they have" if several else "it has"
        return f"{sentence}: the others wait for {it} in {where}, which {have} not entered"
    why = _WHY.get(first.evidence)
    sentence += f": {why[several]}" if why else ""
    return f"{sentence}; the others wait for {it} in {where}" if first.group else sentence
