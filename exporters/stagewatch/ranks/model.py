"""One rank of this node, as collectors of any subject see it.

A subject that attributes series to ranks gets `RankDirectory.ranks` or `ProcessFamilies.look` from
its context, and needs only the names of this file.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagewatch.ranks.records import Life, RankRecord

RANK_LABELS = ("job_id", "role", "rank")
"""The labels of every series that belongs to a rank."""

SHOWN_SECONDS = 10.0
"""How long a look at ranks is shown.  There is one a second, and three of these pass while a busy
machine, or one with hundreds of full records of a neighbour's, takes its next: no rank vanishes.
"""

RankKey = tuple[str, str, str]
"""The values of `RANK_LABELS`."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank, with its process and its record, if it keeps one."""

    job_id: str
    role: str
    rank: int
    pid: int
    """0 if the rank lives but its process cannot be seen from here."""
    local_rank: int | None = None
    world_size: int | None = None
    framework: str = ""
    gpu: str = ""
    record: RankRecord | None = None
    start_ticks: int | None = None
    uid: int = -1
    """The user it belongs to; -1 if unknown."""

    @property
    def key(self) -> RankKey:
        """The values of `RANK_LABELS`."""
        return self.job_id, self.role, str(self.rank)

    @property
    def thread(self) -> int:
        """The training thread, by the number in the process's own PID namespace; 0 if unknown."""
        lane = self.record.training if self.record else None
        return lane.thread if lane else 0

    @property
    def life(self) -> Life:
        """Whether its process lives; the environment scan finds live ranks only."""
        return self.record.life if self.record else Life.ALIVE


def rank_of(record: RankRecord) -> Rank:
    """The rank that keeps a record."""
    return Rank(
        job_id=record.job_id,
        role=record.role,
        rank=record.rank,
        pid=record.pid,
        local_rank=record.local_rank,
        world_size=record.world_size,
        framework=record.framework,
        gpu=record.gpu,
        record=record,
        start_ticks=record.start_ticks,
        uid=record.uid,
    )
