"""Counters of a rank, summed over processes, sockets or threads that come and go."""

from __future__ import annotations

from collections.abc import Hashable


class RankCounter:
    """A sum that never falls while its owner is the same.

    When a member ends, its share leaves the sum with it; what it had counted stays in the total.
    """

    def __init__(self) -> None:
        self._totals: dict[Hashable, tuple[Hashable, float, float]] = {}
        self._seen: set[Hashable] = set()

    def update(self, key: Hashable, owner: Hashable, value: float) -> float:
        """The total, now that the sum is `value`; a new owner (the rank's pid) starts afresh."""
        self._seen.add(key)
        known_owner, last, total = self._totals.get(key, (owner, 0, 0))
        total = value if known_owner != owner else total + max(0, value - last)
        self._totals[key] = (owner, value, total)
        return total

    def forget_unseen(self) -> None:
        """Drop every key that was not updated since the last call."""
        self._totals = {key: self._totals[key] for key in self._seen}
        self._seen = set()
