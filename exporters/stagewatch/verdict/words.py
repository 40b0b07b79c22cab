"""Puts into words which ranks there are, and what they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stagewatch.ranks.wait_class import WaitClass
from stagewatch.verdict.facts import RankFacts

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


def sleeps_in(channel: str) -> str:
    """A wait channel by kind, since kernels rename functions (futex_wait_queue, futex_do_wait)."""
    return next((kind for kind in _KINDS if kind in channel), channel)
