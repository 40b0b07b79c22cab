"""Made-up jobs whose ranks work in ticks of 15 s, as a node agent tells of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from stagewatch.ranks.own_work import StepSums
from stagewatch.ranks.peers import ROLE
from tests.alerts.promtool import series

TICK = 15
Steps = list[tuple[float, float, int]]
"""Steps that end in a tick: the time of each, own work in each, and how many there are of it."""


@dataclass
class MadeUp:
    """Series of a job, in promtool's notation."""

    ranks: int
    ticks: int
    node: Callable[[int], str] = lambda rank: "n1"
    given: dict[str, str] = field(default_factory=dict)

    def gauge(self, name: str, value: Callable[[int, int], float], **labels: str) -> MadeUp:
        """A value by rank and tick; NaN where there is none."""
        for rank in range(self.ranks):
            values = [value(rank, tick) for tick in range(self.ticks + 1)]
            self._add(rank, name, values, labels)
        return self

    def counter(self, name: str, more: Callable[[int, int], float]) -> MadeUp:
        """Something that grows, by how much in a tick."""
        for rank in range(self.ranks):
            self._grows(rank, name, more, {})
        return self

    def works(
        self, seconds: Callable[[int, int], float], peers: Callable[[int], str] = lambda rank: ROLE
    ) -> MadeUp:
        """Own work in a tick, and with whose it is compared."""
        for rank in range(self.ranks):
            labels = {"peers": peers(rank)}
            self._grows(rank, "rl_rank_own_work_seconds_total", seconds, labels)
        return self

    def _grows(
        self, rank: int, name: str, more: Callable[[int, int], float], labels: dict[str, str]
    ) -> None:
        grown = accumulate((more(rank, tick) for tick in range(self.ticks)), initial=0.0)
        self._add(rank, name, grown, labels)

    def steps(self, ended: Callable[[int, int], Steps]) -> MadeUp:
        """Steps with numbers, that end in a tick."""
        for name in ("rl_rank_step", "rl_newest_step"):
            self.counter(name, lambda r, t: sum(n for *_, n in ended(r, t)))
        self.counter("rl_rank_steps_total", lambda r, t: sum(n for *_, n in ended(r, t)))
        for name, power in (("", 1), ("_squared", 2)):
            self.counter(
                f"rl_rank_step_work{name}_seconds_total",
                lambda r, t, power=power: sum(n * work**power for _, work, n in ended(r, t)),  # type: ignore[misc]
            )
        rows = [self._moments(rank, ended) for rank in range(self.ranks)]
        for number, moment in enumerate(("ranks", "third", "variance", "time", "time_variance")):
            by_tick = [sum(row[tick][number] for row in rows) for tick in range(self.ticks + 1)]
            self._add(0, "rl_step_moments", by_tick, {"moment": moment}, of="role")
        return self

    def _moments(self, rank: int, ended: Callable[[int, int], Steps]) -> list[tuple[float, ...]]:
        sums = StepSums()
        found = [sums.moments(0)]
        for tick in range(self.ticks):
            for time, work, steps in ended(rank, tick):
                sums.count(time, work, steps)
            found.append(sums.moments((tick + 1) * TICK * 10**9))
        return found

    def _add(
        self,
        rank: int,
        name: str,
        values: Iterable[float],
        labels: dict[str, str],
        of: Literal["rank", "role"] = "rank",
    ) -> None:
        who = {"cluster": "c", "node": self.node(rank), "job_id": "7", "role": "train"}
        which = {"rank": rank} if of == "rank" else {}
        where = series(name, **who, **which, **labels)
        self.given[where] = " ".join("_" if value != value else f"{value:.6g}" for value in values)
