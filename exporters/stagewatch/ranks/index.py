"""Which processes are ranks, as far as a collector that attributes things to them needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.rank_record import Life

RANK_LABELS = ("job_id", "role", "rank")
"""The labels of every series that belongs to a rank."""

RankKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A live process that is a rank; its descendants count toward it."""

    pid: int
    job_id: str
    role: str
    rank: str

    @property
    def key(self) -> RankKey:
        """The values of `RANK_LABELS`."""
        return self.job_id, self.role, self.rank


class RankIndex(Protocol):
    """The ranks of this node."""

    def processes(self) -> tuple[RankProcess, ...]:
        """Every live rank; never blocks."""
        ...


class NoRanks:
    """A node without ranks, or an agent that does not look for them."""

    def processes(self) -> tuple[RankProcess, ...]:
        """None."""
        return ()


class LiveRanks:
    """The live ranks of a `RankDirectory`."""

    def __init__(self, directory: RankDirectory) -> None:
        self._directory = directory

    def processes(self) -> tuple[RankProcess, ...]:
        """Those whose process runs."""
        return tuple(
            RankProcess(rank.pid, *rank.key)
            for rank in self._directory.ranks()
            if rank.life is Life.ALIVE
        )
