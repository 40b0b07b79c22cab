"""How `inspect` puts a group of ranks into words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stagewatch.ranks.wait_class import WaitClass
from stagewatch.verdict.facts import RankFacts

Ranks = Sequence[RankFacts]

_ONE = {
    WaitClass.SPIN: "spins",
    WaitClass.COMPUTE: "computes",
    WaitClass.PARKED: "is parked",
    WaitClass.IO: "waits for storage",
    WaitClass.STOPPED: "is stopped",
    WaitClass.TRACED: "is held by a debugger",
    WaitClass.GONE: "is gone",
    WaitClass.UNKNOWN: "is unclear",
}
_MANY = {
    WaitClass.SPIN: "spin",
    WaitClass.COMPUTE: "compute",
    WaitClass.PARKED: "are parked",
    WaitClass.IO: "wait for storage",
    WaitClass.STOPPED: "are stopped",
    WaitClass.TRACED: "are held by a debugger",
    WaitClass.GONE: "are gone",
    WaitClass.UNKNOWN: "are unclear",
}
BEEN = {
    WaitClass.SPIN: "spinning",
    WaitClass.COMPUTE: "computing",
    WaitClass.PARKED: "parked",
    WaitClass.IO: "waiting for storage",
    WaitClass.STOPPED: "stopped by a signal",
    WaitClass.UNKNOWN: "without progress",
}


def doing(ranks: Ranks) -> str:
    """How many ranks do what."""
    counts = Counter(rank.wait_class for rank in ranks).most_common()
    return ", ".join(
        f"{count} ranks {_MANY[kind]}" if count > 1 else f"1 rank {_ONE[kind]}"
        for kind, count in counts
    )


def who(ranks: Ranks) -> str:
    """The ranks by number and process."""
    if len(ranks) == 1:
        return f"rank {ranks[0].rank} (pid {ranks[0].pid})"
    shown = ", ".join(f"{rank.rank} (pid {rank.pid})" for rank in ranks[:4])
    return f"ranks {shown}" + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


def age(ranks: Ranks) -> float:
    """How long ago the last progress of any of them was, seconds."""
    return min((rank.progress_age_seconds or 0.0 for rank in ranks), default=0.0)


def step(ranks: Ranks) -> str:
    """The furthest step that any of them is at."""
    steps = [rank.step for rank in ranks if rank.step is not None]
    return str(max(steps)) if steps else "unknown"


def span(seconds: float) -> str:
    """A time span for a person."""
    return f"{seconds:.0f} s" if seconds < 3600 else f"{seconds / 3600:.1f} h"
