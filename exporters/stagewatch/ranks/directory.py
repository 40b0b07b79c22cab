"""Finds the ranks of this node: by their stage records, else by their environment."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from stagewatch.core.errors import NoData, SourceError
from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.environment_scan import PATIENCE_SECONDS, EnvironmentScan
from stagewatch.ranks.model import Rank, rank_of
from stagewatch.ranks.places import readable_places
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.records import Life, RankRecord, Recording
from stagewatch.record import DEFAULT_DIRECTORY, FILE_SIZE

MAX_SHARE = 0.2
"""Share of a core that looks may cost; they are rarer if there are many full records."""
MAX_WAIT = 6
"""After this many times `fresh_for` there is another look, whatever it costs."""


@dataclass(frozen=True, slots=True)
class Census:
    """The ranks of the node at one moment."""

    ranks: tuple[Rank, ...] = ()
    """One rank per (job, role, rank), dead ones with a record included."""
    records: tuple[RankRecord, ...] = ()
    """All records, also those with a successor."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """The number of skipped files of the record directory, by reason."""
    unreadable: SourceError | None = None
    """Why the record directory cannot be read; `ranks` then come from environments alone."""
    available_bytes: int | None = None
    """Room for further records of `FILE_SIZE` each; `None` if unknown."""
    unread: frozenset[int] | None = None
    """Number of possible ranks whose environment cannot be read in time; `None` if unscanned."""
    denied: frozenset[int] = frozenset()
    """Processes that may be ranks, but that we may not read."""

    @property
    def full(self) -> bool:
        """Whether the record directory has no room for another record."""
        return self.available_bytes is not None and self.available_bytes < FILE_SIZE


class RankDirectory:
    """The ranks of one node, shared by the collectors that need them.

    Reading is cheap and never blocks on another system or process, so it happens under a lock, at
    most once in `fresh_for` seconds, or less often where it takes long (`MAX_SHARE`).  With a
    `scan`, processes without a record may be ranks too.

    Every look asks whether the ranks live.  It copies what live ranks have written if the last
    copies are `copy_seconds` old, or if the caller asks for new ones.
    """

    def __init__(
        self,
        records: RecordDirectory,
        scan: EnvironmentScan | None = None,
        *,
        fresh_for: float = 0.5,
        copy_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
        gpu_of: Callable[[int], str] = lambda pid: "",
    ) -> None:
        """`gpu_of` returns the GPU of a process, for ranks that do not record it."""
        self._records = records
        self._scan = scan
        self._fresh_for = self._wait = fresh_for
        self._copy_seconds = copy_seconds
        self._copied_at = float("-inf")
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._lock = threading.Lock()
        self._look_again_at = float("-inf")
        self._census = Census()
        self._gpu_of = gpu_of
        self._gpus: dict[tuple[int, int | None], str] = {}
        """The GPUs by process; ended processes are forgotten."""
        self._succeeded: set[str] = set()
        """Names of dead records whose rank has begun again, perhaps with another number."""

    def look(self, *, copied: bool = False) -> Census:
        """The current ranks; if `copied`, with new copies of what they have written.

        Raises `SourceError` if the record directory cannot be read.
        """
        census = self._fresh(copied=copied)
        if census.unreadable is not None:
            raise SourceError(str(census.unreadable)) from census.unreadable
        return census

    def ranks(self) -> tuple[Rank, ...]:
        """All current ranks; if records cannot be read, only those found by their environment.

        Collectors of other subjects use it to attribute their series to ranks.
        """
        return self._fresh().ranks

    def over_quota(self) -> Mapping[int, int]:
        """Bytes in the record directory by user, for users with too many."""
        return self._records.over_quota()

    def recording(self, record: RankRecord) -> Recording | None:
        """A copy of a record of the latest census, with its events; `None` once it is forgotten.

        It takes some tens of microseconds; a rank that writes meanwhile is not held up.
        """
        with self._lock:
            return self._records.recording(record)

    def _fresh(self, *, copied: bool = False) -> Census:
        with self._lock:
            now = self._clock()
            age = now - self._copied_at
            if now >= self._look_again_at or (copied and age > self._wait):
                began = self._cpu_clock()
                copy = copied or age >= self._copy_seconds
                self._copied_at = now if copy else self._copied_at
                self._census = self._look(copy=copy)
                wait = (self._cpu_clock() - began) / MAX_SHARE
                self._wait = min(max(self._fresh_for, wait), MAX_WAIT * self._fresh_for)
                self._look_again_at = self._clock() + self._wait
            return self._census

    def _look(self, *, copy: bool) -> Census:
        records: list[RankRecord] = []
        latest: list[RankRecord] = []
        unreadable = None
        try:
            records = self._records.read(copy=copy)
            latest = self._latest(records)
        except NoData:
            pass
        except SourceError as error:
            unreadable = error
        ranks = {rank.key: rank for rank in map(rank_of, latest)}
        alive = {rank.pid for rank in ranks.values() if rank.life is Life.ALIVE and rank.pid}
        recorded = {(rank.job_id, rank.rank, rank.uid) for rank in ranks.values()}
        for rank in self._scan.ranks(alive) if self._scan else ():
            if (rank.job_id, rank.rank, rank.uid) not in recorded:
                ranks.setdefault(rank.key, rank)
        return Census(
            ranks=self._with_gpus(sorted(ranks.values(), key=lambda r: (r.job_id, r.role, r.rank))),
            records=tuple(records),
            skipped=dict(self._records.skipped),
            unreadable=unreadable,
            available_bytes=self._records.available_bytes(),
            unread=self._scan.blocked if self._scan else None,
            denied=self._scan.denied if self._scan else frozenset(),
        )

    def _with_gpus(self, ranks: list[Rank]) -> tuple[Rank, ...]:
        known, self._gpus = self._gpus, {}
        for place, rank in enumerate(ranks):
            process = rank.pid, rank.start_ticks
            if rank.pid and (gpu := rank.gpu or self._gpu_of(rank.pid) or known.get(process)):
                self._gpus[process] = gpu
                ranks[place] = replace(rank, gpu=gpu)
        return tuple(ranks)

    def _latest(self, records: list[RankRecord]) -> list[RankRecord]:
        """One record per (job, role, rank): the living before the dead, then the newest.

        A dead record with a successor stays out for good, even once the successor has ended.  So
        does one whose number does not exist in a smaller world that began later.
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


def records_of_node(record_dir: Path, proc: Procfs) -> RecordDirectory:
    """The records of a directory; for the default directory, also those of private directories."""
    ordinary = record_dir == Path(DEFAULT_DIRECTORY)
    return RecordDirectory(record_dir, proc, private=readable_places if ordinary else list)


@contextmanager
def rank_directory(
    record_dir: Path, proc: Procfs, *, fresh_for: float = 0.5
) -> Iterator[RankDirectory]:
    """The ranks of this node for a command, whose looks wait some seconds for a scan."""
    files = GuardedFiles(proc.root)
    records = records_of_node(record_dir, proc)
    with closing(files), closing(records):
        scan = EnvironmentScan(proc, files, patience=PATIENCE_SECONDS)
        yield RankDirectory(records, scan, fresh_for=fresh_for)


def _outnumbered(records: list[RankRecord]) -> Iterator[str]:
    """Names of dead records whose rank number no longer exists.

    Every live rank of the role is younger and states a smaller world, as after torchrun has lost a
    node and continued without it.
    """
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
