"""Which processes of this node are ranks: those with a stage record, and those whose environment
says so."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from stagewatch.core.errors import NoData, SourceError
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.environment_scan import EnvironmentScan
from stagewatch.ranks.rank import Rank, rank_of
from stagewatch.ranks.rank_record import Life, RankRecord
from stagewatch.ranks.record_directory import RecordDirectory

__all__ = ["Found", "Rank", "RankDirectory"]


@dataclass(frozen=True, slots=True)
class Found:
    """One look at the node."""

    ranks: tuple[Rank, ...] = ()
    """Every rank, dead ones with a record included; one per (job, role, rank)."""
    records: tuple[RankRecord, ...] = ()
    """Every record, those included that another process has succeeded."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Files in the record directory that were passed over, by reason."""
    unreadable: str = ""
    """Why the record directory cannot be read, if so; `ranks` are then those of the environment."""


class RankDirectory:
    """The ranks of one node, shared by the collectors that need them.

    Reading is cheap and never blocks on another system, so it happens under a lock, at most once
    in `fresh_for` seconds.
    """

    def __init__(
        self,
        records: RecordDirectory,
        proc: Procfs,
        *,
        by_environment: bool = True,
        fresh_for: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self._scan = EnvironmentScan(proc, clock=clock) if by_environment else None
        self._fresh_for = fresh_for
        self._clock = clock
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._found = Found()
        self._succeeded: set[str] = set()
        """Names of dead records whose rank has since run again, in another process or by another
        number."""

    def look(self) -> Found:
        """What is there now.  Raises `SourceError` where the record directory cannot be read."""
        found = self._fresh()
        if found.unreadable:
            raise SourceError(found.unreadable)
        return found

    def ranks(self) -> tuple[Rank, ...]:
        """Every rank that can be found, for what is only attributed to ranks: where the record
        directory cannot be read, those of the environment alone."""
        return self._fresh().ranks

    def _fresh(self) -> Found:
        with self._lock:
            now = self._clock()
            if now - self._looked_at >= self._fresh_for:
                self._found = self._look()
                self._looked_at = now
            return self._found

    def _look(self) -> Found:
        records: list[RankRecord] = []
        latest: list[RankRecord] = []
        unreadable = ""
        try:
            records = self._records.read()
            latest = self._latest(records)
        except NoData:
            pass
        except SourceError as error:
            unreadable = str(error)
        found = {rank.key: rank for rank in map(rank_of, latest)}
        known = {rank.pid for rank in found.values() if rank.life is Life.ALIVE and rank.pid}
        recorded = {(rank.job_id, rank.rank) for rank in found.values()}
        for rank in self._scan.ranks(known) if self._scan else ():
            if (rank.job_id, rank.rank) not in recorded:
                found.setdefault(rank.key, rank)
        return Found(
            ranks=tuple(found[key] for key in sorted(found, key=_order)),
            records=tuple(records),
            skipped=dict(self._records.skipped),
            unreadable=unreadable,
        )

    def _latest(self, records: list[RankRecord]) -> list[RankRecord]:
        """One record per (job, role, rank): the living before the dead, then the newest.

        A dead record that had to give way stays out for good: the end of its successor does not
        make it the rank's state again.  Nor is one shown whose number a smaller world that has
        begun since does not have.
        """
        self._succeeded &= {record.name for record in records}
        self._succeeded |= set(_outnumbered(records))
        best: dict[tuple[str, str, int], RankRecord] = {}
        for record in sorted(records, key=_precedence):
            if record.name not in self._succeeded:
                best[(record.job_id, record.role, record.rank)] = record
        shown = {record.name for record in best.values()}
        self._succeeded |= {
            record.name
            for record in records
            if record.life is not Life.ALIVE and record.name not in shown
        }
        return list(best.values())


def _outnumbered(records: list[RankRecord]) -> Iterator[str]:
    """Names of dead records whose number exists no more: every living rank of their role is younger
    and tells of fewer ranks, as after torchrun has lost a node and gone on without it."""
    living: dict[tuple[str, str], list[RankRecord]] = defaultdict(list)
    for record in records:
        if record.life is Life.ALIVE:
            living[record.job_id, record.role].append(record)
    for record in records:
        others = living[record.job_id, record.role]
        if (
            record.life is not Life.ALIVE
            and record.rank < (record.world_size or 0)
            and others
            and all(
                other.created > record.created and 0 < (other.world_size or 0) <= record.rank
                for other in others
            )
        ):
            yield record.name


def _precedence(record: RankRecord) -> tuple[bool, float]:
    return record.life is Life.ALIVE, record.created


def _order(key: tuple[str, str, str]) -> tuple[str, str, int]:
    return key[0], key[1], int(key[2])
