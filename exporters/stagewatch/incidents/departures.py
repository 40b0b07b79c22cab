"""Remembers which ranks of a job were on this node and have left.

A rank that ends in good order removes its record, so nothing else on the node remembers it.  The
agent keeps the departures in a file beside the incidents, for `stagewatch inspect` and for its own
next start.  For a cluster, the judge asks Prometheus which ranks were scraped lately.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stagewatch.core.files import write_atomically
from stagewatch.core.state_file import BROKEN, MAX_ITEMS, decode, parse
from stagewatch.host.procfs import Procfs
from stagewatch.judgement.facts import BLANK, RankFacts
from stagewatch.judgement.limits import REMEMBERED_SECONDS
from stagewatch.ranks.model import Rank, RankKey
from stagewatch.ranks.records import Life
from stagewatch.ranks.wait_class import WaitClass

log = logging.getLogger(__name__)

NAME = "departures.json"
VERSION = 1
MAX_PER_USER = 256
"""The most departures of one user, as many as his records; so users do not crowd out others."""
MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Departure:
    """A rank that lived on this node and has left."""

    job_id: str
    role: str
    rank: int
    pid: int
    world_size: int | None
    user: int | None
    """The user it belonged to; `None` if unknown."""
    time: float
    """When it was first missing, in seconds of `CLOCK_BOOTTIME`."""

    @property
    def key(self) -> RankKey:
        """The key of the rank, as `Rank.key`."""
        return self.job_id, self.role, str(self.rank)


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Departures:
    """The ranks that left jobs which still have a rank here.

    It forgets jobs without a rank, ranks that come back, and ranks that left more than
    `REMEMBERED_SECONDS` ago.  With a `file`, departures survive a restart of the agent, but not a
    boot.
    """

    def __init__(
        self,
        file: Path | None = None,
        boot_id: str = "",
        *,
        clock: Callable[[], float] = _since_boot,
    ) -> None:
        self._file = file
        self._boot_id = boot_id
        self._clock = clock
        self._live: dict[RankKey, Rank] = {}
        before = read(file, boot_id) if file else ()
        self._left = {departure.key: departure for departure in before}
        self._failed = False

    def look(self, ranks: Iterable[Rank]) -> None:
        """Compare all ranks of the node with those of the last look."""
        now = self._clock()
        live = {rank.key: rank for rank in ranks if rank.life is Life.ALIVE}
        left = {
            **{key: one for key, one in self._left.items() if _remembered(one, now)},
            **{key: _departure(rank, now) for key, rank in self._live.items() if key not in live},
        }
        jobs = {job_id for job_id, _, _ in live}
        left = {key: one for key, one in left.items() if key not in live and one.job_id in jobs}
        left = {one.key: one for one in _latest(left.values())}
        self._live = live
        if left != self._left:
            self._left = left
            self._keep()

    def facts(self, ranks: Sequence[RankFacts]) -> list[RankFacts]:
        """The facts of the ranks that left the jobs of these ranks."""
        return _facts_of(self._left.values(), ranks, self._clock())

    def _keep(self) -> None:
        """Write the file; its content was readable for everybody in the records."""
        if self._file is None:
            return
        left = [asdict(departure) for departure in self._left.values()]
        content = {"version": VERSION, "boot_id": self._boot_id, "departures": left}
        try:
            self._file.parent.mkdir(exist_ok=True)
            write_atomically(self._file, json.dumps(content).encode(), mode=0o644, durable=False)
        except OSError as error:
            if not self._failed:
                log.warning("%s cannot be written: %s", self._file, error.strerror)
            self._failed = True
        else:
            self._failed = False


def read(file: Path, boot_id: str) -> tuple[Departure, ...]:
    """The departures that an agent has kept since this boot; none without a usable file."""
    with contextlib.suppress(OSError, *BROKEN):
        if file.is_file() and file.stat().st_size <= MAX_BYTES:
            content = parse(file.read_bytes())
            if content["version"] == VERSION and content["boot_id"] == boot_id:
                return decode(tuple[Departure, ...], content["departures"])  # type: ignore[no-any-return]
    return ()


def left_lately(directory: Path, ranks: Sequence[RankFacts], proc: Procfs) -> list[RankFacts]:
    """The facts of the ranks that left the jobs of these ranks, from the agent's file."""
    departures = read(directory / NAME, proc.boot_id())
    return _facts_of(departures, ranks, _since_boot())


def _facts_of(
    departures: Iterable[Departure], ranks: Sequence[RankFacts], now: float
) -> list[RankFacts]:
    """The facts of departures from jobs with a live rank among these, without ranks that came
    back."""
    jobs = {rank.job_id for rank in ranks if rank.wait_class is not WaitClass.GONE}
    here = {(rank.job_id, rank.role, str(rank.rank)) for rank in ranks}
    return [
        _facts(departure, now - departure.time)
        for departure in departures
        if departure.job_id in jobs and departure.key not in here and _remembered(departure, now)
    ]


def _remembered(departure: Departure, now: float) -> bool:
    return 0.0 <= now - departure.time < REMEMBERED_SECONDS


def _latest(departures: Iterable[Departure]) -> list[Departure]:
    """The latest departures, at most as many as may be kept of each user and in all."""
    users: Counter[int | None] = Counter()
    kept = []
    for departure in sorted(departures, key=lambda one: one.time, reverse=True):
        users[departure.user] += 1
        if users[departure.user] <= MAX_PER_USER:
            kept.append(departure)
    return kept[:MAX_ITEMS]


def _departure(rank: Rank, now: float) -> Departure:
    user = rank.uid if rank.uid >= 0 else None
    return Departure(rank.job_id, rank.role, rank.rank, rank.pid, rank.world_size, user, now)


def _facts(departure: Departure, seconds: float) -> RankFacts:
    return replace(
        BLANK,
        job_id=departure.job_id,
        role=departure.role,
        rank=departure.rank,
        pid=departure.pid,
        world_size=departure.world_size,
        state="-",
        wait_class=WaitClass.GONE,
        left_seconds=seconds,
    )
