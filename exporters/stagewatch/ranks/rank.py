"""What one rank of this node is, however it was found."""

from __future__ import annotations

from dataclasses import dataclass

from stagewatch.ranks.rank_record import Life, RankRecord


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of this node."""

    job_id: str
    role: str
    rank: int
    pid: int
    """0 where the rank lives but its process cannot be seen from here."""
    local_rank: int | None = None
    world_size: int | None = None
    framework: str = ""
    gpu: str = ""
    record: RankRecord | None = None
    start_ticks: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """The values of the labels job_id, role and rank."""
        return self.job_id, self.role, str(self.rank)

    @property
    def life(self) -> Life:
        """Of the process behind it; ranks found by environment are alive when found."""
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
    )
