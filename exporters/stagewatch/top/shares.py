"""Divides the last minute of every rank into its own work and waits inside of collectives."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from stagewatch.ranks.model import Rank
from stagewatch.ranks.own_work import work_and_waiting

WINDOW_SECONDS = 60.0
"""The time that is divided, if a rank has been seen for so long."""

_Key = tuple[str, str, int, int]


class WorkShares:
    """Follows the counters of ranks over repeated looks."""

    def __init__(self) -> None:
        self._looks: dict[_Key, deque[tuple[float, float, float]]] = {}

    def of(self, ranks: Iterable[Rank], now: float) -> dict[_Key, tuple[float, float]]:
        """The shares of work and of waiting, by job, role, rank and pid.

        `now` is on the clock that counts suspend, in seconds, no earlier than the records were
        read. Ranks without two looks that show time are left out: no record, or no mark of
        progress.
        """
        before, self._looks = self._looks, {}
        shares = {}
        for rank in ranks:
            if rank.record is None:
                continue
            key = rank.job_id, rank.role, rank.rank, rank.pid
            looks = self._looks[key] = before.get(key) or deque(maxlen=1000)
            worked, waited = work_and_waiting(rank.record, now)
            looks.append((now, worked, waited))
            while len(looks) > 2 and looks[1][0] <= now - WINDOW_SECONDS:
                looks.popleft()
            work, waiting = worked - looks[0][1], waited - looks[0][2]
            if work >= 0 and waiting >= 0 and work + waiting > 0:
                shares[key] = work / (work + waiting), waiting / (work + waiting)
        return shares
