"""Divides the page among the ranks of all users, so that no user crowds out another.

Users have equal shares; those who need less leave the rest to the others.  The share of a user is
divided in the same way among its ranks and the totals of its roles.  A rank or a role needs as much
as at the previous look, and some series more; a new one needs everything.  The remainder is divided
equally.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from stagewatch.core.exposition import Histogram, Metric, Samples, escape, gauge
from stagewatch.ranks.model import RANK_LABELS

PAGE_BYTES = 2_000_000
"""The part of a page for the stages, progress and totals of all ranks."""
USER_BYTES = 1_500_000
"""The part of a page for the ranks of one user."""
LINE_BYTES = 140
"""The size of a series without its job and role."""

GROWTH_BYTES = 8_000
"""The least room for growth of a rank or a role until the next look: two stages."""

LEFT_OUT = gauge(
    "stagewatch_rank_series_left_out",
    "Series of stages, progress and totals that the ranks of a user would have, and for which the "
    "page had no room; absent where there is room.",
    ("uid",),
)

Owner = tuple[str, ...]
"""A rank by its job, role and number, or the totals of a role by job and role."""
K = TypeVar("K")


def fair_shares(needs: Mapping[K, float], amount: float) -> dict[K, float]:
    """Divide an amount equally; those who need less leave the rest to the others."""
    shares: dict[K, float] = {}
    left = amount
    for given, (who, need) in enumerate(sorted(needs.items(), key=lambda item: item[1])):
        shares[who] = min(need, left / (len(needs) - given))
        left -= shares[who]
    return {who: share + left / len(needs) for who, share in shares.items()}


@dataclass(slots=True)
class _Room:
    bytes: float
    line: int
    uid: int
    wanted: float = 0.0
    left_out: int = 0
    """Lines."""


@dataclass(slots=True)
class RationedSamples(Samples):
    """Samples of ranks and roles: for each, the first ones for which it has room."""

    rooms: Mapping[Sequence[object], _Room] = field(default_factory=dict)
    """The rooms by owner; a rank is given by its number or its text."""

    def _put(self, metric: Metric, value: float | Histogram, labels: Sequence[object]) -> None:
        room = self.rooms.get(labels[: 3 if metric.labels[:3] == RANK_LABELS else 2])
        if room is not None:
            lines = len(value.bounds) + 3 if isinstance(value, Histogram) else 1
            room.wanted += lines * room.line
            if room.wanted > room.bytes:
                room.left_out += lines
                return
        Samples._put(self, metric, value, labels)


class Rations:
    """Divides the page at every look."""

    def __init__(self) -> None:
        self._out = RationedSamples()

    def samples(self, owners: Mapping[Owner, int]) -> RationedSamples:
        """Empty samples with room for these ranks and roles; `owners`: their users."""
        before = self._out.rooms
        needs: dict[int, dict[Owner, float]] = defaultdict(dict)
        for owner, uid in owners.items():
            known = before.get(owner)
            needs[uid][owner] = known.wanted + GROWTH_BYTES if known else math.inf
        of_users = fair_shares({uid: sum(own.values()) for uid, own in needs.items()}, PAGE_BYTES)
        rooms: dict[Sequence[object], _Room] = {}
        for uid, own in needs.items():
            for owner, share in fair_shares(own, min(of_users[uid], USER_BYTES)).items():
                job_id, role = (len(escape(label).encode()) for label in owner[:2])
                rooms[owner] = room = _Room(share, LINE_BYTES + job_id + role, uid)
                if owner[2:]:
                    numbered = (*owner[:2], int(owner[2]))
                    rooms[numbered] = room
        self._out = RationedSamples(rooms=rooms)
        return self._out

    def add_left_out(self) -> None:
        """Add to the latest samples how many series of each user were left out."""
        left_out: Counter[int] = Counter()
        for room in {id(room): room for room in self._out.rooms.values() if room.left_out}.values():
            left_out[room.uid] += room.left_out
        for uid, lines in left_out.items():
            self._out.add(LEFT_OUT, lines, uid)
            self._out.dropped += lines
