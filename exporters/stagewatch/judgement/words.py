"""The words of verdicts: what each kind of evidence means, and what ranks do.

`inspect`, `top`, pages, reports and stories use them; alerts repeat them in their texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stagewatch.core.words import duration, whole
from stagewatch.judgement.case import Charge
from stagewatch.judgement.facts import Inside, RankFacts
from stagewatch.judgement.judge import Excuse
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


def whereabouts(ranks: Sequence[RankFacts]) -> str:
    """How many ranks do what in which stage, the most first."""
    counts = Counter((rank.wait_class, rank.stage or "no known stage") for rank in ranks)
    return ", ".join(
        f"{count} {DOING[kind][count > 1]} in {stage}"
        for (kind, stage), count in counts.most_common(6)
    )


def _process(rank: RankFacts) -> str:
    """`pid 4005 on node-b`, as far as that is known."""
    pid = f"pid {rank.pid}" if rank.pid else "pid unknown"
    return f"{pid} on {rank.node}" if rank.node else pid


def who(ranks: Sequence[RankFacts]) -> str:
    """The ranks by number and process."""
    if len(ranks) == 1:
        return f"rank {ranks[0].rank} ({_process(ranks[0])})"
    shown = ", ".join(f"{rank.rank} ({_process(rank)})" for rank in ranks[:4])
    return f"ranks {shown}" + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


def numbers(ranks: Sequence[RankFacts]) -> str:
    """The ranks by number alone."""
    shown = ", ".join(str(rank.rank) for rank in ranks[:4])
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {shown}{more}"


def places(ranks: Sequence[RankFacts]) -> str:
    """The ranks by their place in the user's own code, the rarest place first; empty if no stack is
    known."""
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
    """The ranks by the collective that they are inside."""
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

    If they are in calls of several names: the one that most are in, with its longest call.
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


def own_call(rank: RankFacts, group: str) -> str:
    """What a rank does in a group, where that is known: `all_reduce`, else `call`."""
    inside = rank.inside.get(group)
    return inside.op if inside is not None and inside.op != "unknown" else "call"


def place(group: str, op: str) -> str:
    """What others wait in: `all_reduce of world`; without a group, what the kernel shows."""
    return f"{operation(op)} of {group}" if group else op


def operation(name: str) -> str:
    """What a collective does, where that is known."""
    return "a collective" if name == "unknown" else name


MEANING = {
    "process_gone": ("ended without closing its record", "ended without closing their records"),
    "node_lost": ("is on a node that does not answer", "are on a node that does not answer"),
    "missing": ("left, and the others wait for it", "left, and the others wait for them"),
    "not_started": (
        "has never been seen, and the others wait",
        "have never been seen, and the others wait",
    ),
    "left_loop_early": ("left the loop early", "left the loop early"),
    "awaited": (
        "has not entered the operation that the others wait in",
        "have not entered the operation that the others wait in",
    ),
    "awaited_through": (
        "has not delivered the data that the others wait for",
        "have not delivered the data that the others wait for",
    ),
    "not_launched": (
        "has not launched on its GPU the operation that the others wait in",
        "have not launched on their GPUs the operation that the others wait in",
    ),
    "not_begun": (
        "has launched the operation that the others are in, but its GPU has not begun it",
        "have launched the operation that the others are in, but their GPUs have not begun it",
    ),
    "no_bytes": (
        "does not exchange the bytes that the others wait for",
        "do not exchange the bytes that the others wait for",
    ),
    "mismatch": (
        "has made a different call from the others of its group",
        "have made a different call from the others of their group",
    ),
    "livelock": (
        "marks progress but completes no step",
        "mark progress but complete no step",
    ),
    "io_blocked": ("waits for storage", "wait for storage"),
    "device_idle": (
        "has entered it, but its GPU runs no kernel of it; the other GPUs wait in theirs",
        "have entered it, but their GPUs run no kernel of it; the other GPUs wait in theirs",
    ),
    "device_lost": ("has lost its GPU", "have lost their GPUs"),
    "circle": ("waits for itself", "wait for each other"),
    "odd_one_out": ("is stopped by a signal", "are stopped by a signal"),
    "stack_differs": (
        "is at a different place in the code from all others",
        "are at a different place in the code from all others",
    ),
    "stands_alone": (
        "cannot go on by itself, as the kernel shows",
        "cannot go on by themselves, as the kernel shows",
    ),
    "waits_unlike": (
        "waits in a different way from the others",
        "wait in a different way from the others",
    ),
    "stage_differs": (
        "is in a different stage from the others",
        "are in a different stage from the others",
    ),
    "role_differs": (
        "makes no progress, and all other roles wait for it",
        "make no progress, and all other roles wait for them",
    ),
    "alone": ("is the only live rank, and makes no progress",) * 2,
    "stage_behind": (
        "is in a stage that its peers have completed",
        "are in a stage that their peers have completed",
    ),
}
"""What each kind of evidence means: of one rank, and of several."""


def meaning(charge: Charge, *, several: bool) -> str:
    """What a charge means: of one rank, or of several."""
    if charge.evidence == "awaited" and not charge.group:
        return f"{'hold' if several else 'holds'} what the others wait for"
    if charge.evidence == "left_loop_early" and charge.rank.stage == "idle":
        return f"{'are' if several else 'is'} between two stages of the loop"
    return MEANING[charge.evidence][several]


SUSPECT = "; suspect a link, a switch or a GPU"
NOBODY = {
    "mismatch": "ranks of one group are in different collectives, and no side is the majority",
    "missing": "its ranks wait for ranks that are not in sight",
    "cycle": "every rank that others wait for is waiting too",
    "other_role": "another role of the job may hold it up",
    "call": "all ranks are inside calls of tools, environments or reward functions",
    "asking": "the agent is asking the kernel whether the rank that others wait for is waiting too",
    "outsider": "it waits for a process that is not a rank",
    "group_only": f"no rank stands out{SUSPECT}",
    "busy": "all ranks keep a core busy, outside of collectives: they compute, or their GPUs hang",
    "asleep": "all ranks sleep, outside of collectives: an event was lost or a lock is held",
    "process_gone": "all its ranks ended without closing their records",
    "raised": "its ranks raised an exception",
}
"""Why nobody is named."""
EXCUSES = {
    "computing": "{who} is busy with something that takes long",
    "debugger": "a debugger holds {who}",
    "long_stage": "{who} is in {stage}, which may take long",
    "other_role": "{who} of another role is in {stage}, and this one may wait for it",
    "idle": "no stage is open, all are idle",
    "expected": "{who} has announced a pause",
    "suspended": "all ranks are stopped, or were a moment ago: the job is suspended",
}
"""Why something looks like a stall and is not one."""


def excused(excuse: Excuse) -> str:
    """Why a role is not stalled, and which rank is the reason."""
    rank = excuse.rank
    whose = who((rank,)) if rank else "a rank"
    stage = (rank.stage if rank else None) or "a stage that may take long"
    return EXCUSES[excuse.kind].format(who=whose, stage=stage)


def departed(ranks: Sequence[RankFacts]) -> str:
    """Which ranks have left, and when."""
    last = whole(min(rank.left_seconds or 0.0 for rank in ranks))
    when = f"left, the last one {last} ago" if len(ranks) > 1 else f"left {last} ago"
    return f"{numbers(ranks)} {when}"
