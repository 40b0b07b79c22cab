"""Bandwidth and time of NCCL's collectives, and which rank comes last, from NCCL Inspector.

A witness for slowness: Inspector reports operations that have ended, and drops some silently.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration
from stagewatch.core.config import option
from stagewatch.core.descriptors import closing
from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.host.mounts import memory_mounts, mount_id, pin
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.model import RANK_LABELS, Rank
from stagewatch.ranks.nccl import inspector
from stagewatch.ranks.record_directory import open_inside
from stagewatch.ranks.records import Life

MAX_FILES = 256
MAX_BYTES = 1 << 20
"""The most bytes of one file that a look reads; of JSON, the latest."""
MAX_USER_BYTES = 4 << 20
"""The most bytes of one user's files that a look reads; the next looks read the rest."""
MAX_OPERATIONS = 32
"""The most operations of one rank that are exported: those that take longest."""
_TEXT = re.compile(r"nccl_inspector_metrics_([A-Za-z0-9-]{1,80})\.prom")
_LINES = re.compile(r"[A-Za-z0-9._-]{1,255}-pid([0-9]{1,10})\.log")

_LABELS = (*RANK_LABELS, "communicator", "op", "size")
SECONDS = gauge(
    "rl_rank_nccl_operation_seconds",
    "Mean time that NCCL's operations took on a rank lately, by communicator, operation and size, "
    "from NCCL Inspector. It includes the wait for the others: the last rank takes the least.",
    _LABELS,
)
BANDWIDTH = gauge(
    "rl_rank_nccl_bandwidth_bytes_per_second",
    "Mean bus bandwidth of NCCL's operations on a rank lately, from NCCL Inspector.",
    _LABELS,
)
COMPARED = counter(
    "rl_rank_nccl_compared_total",
    "Collectives of a rank in which NCCL Inspector has timed all ranks of the communicator that "
    "run on its node.",
    (*RANK_LABELS, "communicator"),
)
LAST = counter(
    "rl_rank_nccl_last_total",
    "Compared collectives that the rank entered last: it was inside for a fifth less than the "
    "median of the others.",
    (*RANK_LABELS, "communicator"),
)
LAST_SECONDS = counter(
    "rl_rank_nccl_last_seconds_total",
    "How much longer the median of the others was inside the collectives that the rank entered "
    "last.",
    (*RANK_LABELS, "communicator"),
)
LACKING = gauge(
    "stagewatch_nccl_inspector_lacking",
    "Fields that the last samples or lines of NCCL Inspector lacked, or had in another form: "
    "another version of NCCL may write them.",
    ("field",),
)
UNREADABLE = gauge(
    "stagewatch_nccl_inspector_unreadable",
    "Files of NCCL Inspector that the agent may not read.",
)
MAX_FIELDS = 16


@dataclass(frozen=True, slots=True)
class InspectorOptions:
    """Options of the `nccl_inspector` collector."""

    dir: Path = option(
        Path("/run/stagewatch/nccl"),
        "NCCL_INSPECTOR_DUMP_DIR of the jobs: a directory in memory, where nothing else lies",
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """How far a file of JSON was read, and which rank reported last."""

    end: int = 0
    reporter: inspector.Reporter | None = None


class InspectorCollector(Collector):
    """Reads the files of a directory; files outside of memory are not touched."""

    def __init__(self, directory: Path, ranks: RankDirectory) -> None:
        self._directory, self._ranks = directory, ranks
        self._arrivals = inspector.Arrivals()
        self._read: dict[tuple[int, int], _Read] = {}
        """How far each file of JSON was read, by device and inode."""
        self._unreadable = 0

    def collect(self) -> Samples:
        ranks = [rank for rank in self._ranks.ranks() if rank.life is Life.ALIVE]
        found: defaultdict[tuple[str, str, str], dict[inspector.Operations, inspector.Measured]] = (
            defaultdict(dict)
        )
        lacks: Counter[str] = Counter()
        by_pid = {}
        seen: dict[tuple[int, int], _Read] = {}
        files = self._unreadable = 0
        read: Counter[int] = Counter()
        for name, fd in self._files():
            files += 1
            status = os.fstat(fd)
            mine = [rank for rank in ranks if rank.uid == status.st_uid]
            if not mine or read[status.st_uid] >= MAX_USER_BYTES:
                self._keep_place(status, seen)
                continue
            before = self._read.get(_place(status), _Read())
            read[status.st_uid] += min(max(0, status.st_size - before.end), MAX_BYTES)
            if gpu := _TEXT.fullmatch(name):
                report = inspector.read_text(os.pread(fd, MAX_BYTES, 0).decode("utf-8", "replace"))
                for rank in mine:
                    if gpu[1] in rank.gpu.replace("GPU-", "").split(","):
                        found[rank.key] |= report.measured
            elif pid := _LINES.fullmatch(name):
                report = self._new_lines(fd, seen)
                # A process cannot speak for another one.
                own = [one for one in report.ended if one.pid == int(pid[1])]
                by_own_pid = {_own_pid(rank): rank for rank in mine}
                for one in own:
                    if one.pid in by_own_pid:
                        by_pid[one.pid] = by_own_pid[one.pid]
                        self._arrivals.add(one)
                for number, what, measured in inspector.means(own):
                    if number in by_pid:
                        found[by_pid[number].key][what] = measured
            else:
                continue
            lacks += report.lacks
        self._read = seen
        self._arrivals.compare({_own_pid(rank) for rank in ranks})
        if not files + self._unreadable:
            raise NoData(f"NCCL Inspector has written nothing into {self._directory}")
        out = _shown(found, lacks, self._arrivals, ranks)
        out.add(UNREADABLE, self._unreadable)
        return out

    def _new_lines(self, fd: int, seen: dict[tuple[int, int], _Read]) -> inspector.Report:
        """The report of the whole lines since the last look; of many, the latest."""
        status = os.fstat(fd)
        before = self._read.get(_place(status), _Read())
        if status.st_size < before.end:
            before = _Read()
        start = max(before.end, status.st_size - MAX_BYTES)
        raw = os.pread(fd, MAX_BYTES, start)
        end = raw.rfind(b"\n") + 1
        if start > before.end:
            report = inspector.read_lines(raw[raw.find(b"\n") + 1 : end])
        else:
            report = inspector.read_lines(raw[:end], before.reporter)
        seen[_place(status)] = _Read(start + end, report.reporter)
        return report

    def _keep_place(self, status: os.stat_result, seen: dict[tuple[int, int], _Read]) -> None:
        """Keep the place, so that the next look continues there."""
        if (place := _place(status)) in self._read:
            seen[place] = self._read[place]

    def _files(self) -> Iterator[tuple[str, int]]:
        """Name and descriptor of each file.  Raises `SourceError` if the directory may not be
        read."""
        try:
            directory = pin(self._directory, os.O_DIRECTORY)
        except FileNotFoundError as error:
            raise NoData(f"{self._directory} does not exist") from error
        except OSError as error:
            raise SourceError(f"{self._directory}: {error.strerror}") from error
        with closing(directory):
            if mount_id(directory) not in memory_mounts():
                raise SourceError(f"{self._directory} is not in memory")
            with os.scandir(f"/proc/self/fd/{directory}") as entries:
                names = sorted(one.name for one in islice(entries, MAX_FILES))
            for name in names:
                fd = open_inside(directory, Path(name))
                if isinstance(fd, str):
                    self._unreadable += fd == "unreadable"
                    continue
                with closing(fd):
                    yield name, fd


def _place(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _own_pid(rank: Rank) -> int:
    """The pid of a rank in its own PID namespace, from the name of its record."""
    name = Path(rank.record.name).name if rank.record else ""
    first = name.partition("-")[0]
    return int(first) if first.isdecimal() else rank.pid


def _shown(
    found: dict[tuple[str, str, str], dict[inspector.Operations, inspector.Measured]],
    lacks: Counter[str],
    arrivals: inspector.Arrivals,
    ranks: Iterable[Rank],
) -> Samples:
    out = Samples()
    for key, those in sorted(found.items()):
        longest = sorted(those.items(), key=lambda one: (-one[1].seconds, one[0]))
        for what, measured in longest[:MAX_OPERATIONS]:
            labels = *key, what.communicator, what.op, what.size
            out.add(SECONDS, measured.seconds or None, *labels)
            out.add(BANDWIDTH, measured.bandwidth or None, *labels)
    keys = {_own_pid(rank): rank.key for rank in ranks}
    for (pid, communicator), lateness in list(arrivals.ranks.items())[: 8 * MAX_FILES]:
        with suppress(KeyError):
            where = *keys[pid], communicator
            out.add(COMPARED, lateness.compared, *where)
            out.add(LAST, lateness.last, *where)
            out.add(LAST_SECONDS, lateness.seconds, *where)
    for name, count in lacks.most_common(MAX_FIELDS):
        out.add(LACKING, count, name)
    return out


SPEC = Declaration(
    name="nccl_inspector",
    help="time and bandwidth of NCCL's operations, and who comes last, by NCCL Inspector",
    interval=15.0,
    options=InspectorOptions,
)
