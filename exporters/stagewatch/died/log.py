"""Reads logs of a job into causes: one file of all ranks, or one file for each.

Of a large file, the head and the tail are read; memory is bounded for any content.  The rank of a
line follows from the prefix of torchrun, srun, mpirun or Ray, or from the name of the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from stagewatch.core.descriptors import regular
from stagewatch.core.errors import StagewatchError
from stagewatch.core.words import printable
from stagewatch.died.causes import Cause, Death, Kind
from stagewatch.died.lines import WORDS, Meaning, of_exception, of_line
from stagewatch.logs.patterns import MAX_LINE

HEAD, TAIL = 8 << 20, 56 << 20
"""The bytes that are read from the beginning of a file and before its end."""
READ = 1 << 20
MAX_CAUSES = 2048
"""The most causes kept of a file; those that the job survived are dropped first."""
MAX_LOOKED = 4 << 20
"""The most characters of lines with one of `WORDS` that are examined, in head and tail each."""
MAX_RANKS = 65536
MESSAGE_LINES = 8
"""The rest of an exception's message is searched in so many lines below it."""
SURVIVED = 3
"""After an error with so many later marks of progress of its rank, the job went on."""
MAX_SHOWN = 500
"""The most characters of a line that are shown."""

_FINAL = {Death.TIME_LIMIT, Death.PREEMPTION, Death.NODE}
"""Causes that are reported before they happen."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]{0,200}\x07")
_PREFIX = re.compile(
    r"\[\d+,(?P<mpi>\d{1,6})\]<std(?:err|out)>: ?"
    r"|\[(?P<horovod>\d{1,6})\]<std(?:err|out)>: ?"
    r"|\[(?:rank|default|Rank )(?P<torchrun>\d{1,6})\]:? ?"
    r"|(?:rank ?)?(?P<srun>\d{1,6}): "
    r"|\((?:[\w.()-]+ )?pid=\d+(?:, ip=(?P<ray>[\w.:]+))?\)(?:\x1b\[0m)? ?"
    r"|(?P<pdsh>[a-z][\w.-]{0,62}\d): "
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<syslog>[\w.-]{1,64}) kernel: ?"
    r"|\[ *\d+\.\d+\] "
    r"|[\[(]?(?P<date>\d{4}[-/]\d\d[-/]\d\d)[T_ ](?P<time>\d\d:\d\d:\d\d)(?P<fraction>[.,]\d{1,9})?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?[\])]?:?(?: - | )?"
    r"|\[[^\[\]]{1,80}\]:? "
    r"|(?:ERROR|FATAL|CRITICAL|[Ee]rror)[: ] *(?:\[[^\]]{1,60}\] *)?(?=[\w.]*(?:Error|Exception)\b)"
    r"|<\w*> +|[\w.-]{1,64} +\|{1,2} |\| ?"
)
_PROGRESS = re.compile(
    r"\b(?:step|iter(?:ation)?|epoch|batch)s?\b[^\w\n]{0,4}\d|\d/\d+ ?\[\d+:|[\d.](?:it/s|s/it)"
    r"|\bloss\b\W{0,4}\d|\b(?:steps?|iterations?)/s",
    re.IGNORECASE,
)
_CHAINED = re.compile(r"During handling of the above|The above exception was|Original Traceback")
_RANK_IN = re.compile(
    r"\[(?:PG [^\]]{0,80}? )?[Rr]ank (\d{1,6})\]|\brank\s*:? (\d{1,6})\b|\btasks? (\d{1,6})\b"
)
_NODE_IN = re.compile(
    r"srun: error: ([\w.-]+): |(?:STEP|JOB) \S+ ON ([\w.-]+) CANCELLED|ode failure on ([\w.-]+)"
)
_FILE_RANK = re.compile(r"(?:rank|task|worker|default|proc)[._-]?(\d{1,6})(?!\d)")
_SUMMARY = re.compile(r"^ *(host|rank|time|exitcode) *: *(\S+)")
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (\d+)")
_SEQUENCE = re.compile(r"SeqNum=(\d+)")


@dataclass(slots=True)
class _Stream:
    """The state of reading the lines of one rank in a file."""

    progress: int = 0
    in_traceback: bool = False
    chained: bool = False
    since_plain: int = MESSAGE_LINES
    """Number of lines since an exception without a class of its own."""
    last: _Found | None = None


@dataclass(slots=True)
class _Found:
    cause: Cause
    stream: _Stream
    progress: int
    """Number of marks of progress of its rank before it."""
    plain: bool
    explained_below: bool = False
    """Whether a later line says more about it."""

    @property
    def survived(self) -> bool:
        if self.cause.death in _FINAL:
            return False
        return self.stream.progress - self.progress >= SURVIVED


@dataclass(slots=True)
class Log:
    """The content of a file on the end of a job."""

    name: str
    causes: list[Cause] = field(default_factory=list)
    """The causes in the order of their lines; a cause has time 0 if its line has no time."""
    skipped: int = 0
    """Number of bytes between head and tail."""
    ranks: set[int] = field(default_factory=set)
    waited: dict[int, int] = field(default_factory=dict)
    """By rank that timed out: the number of its last enqueued collective, else of the late one."""
    root: Cause | None = None
    """The first failure that torchrun has observed."""


def read(path: Path, since: int = 0) -> Log:
    """The log in a file from a place on.  Raises `StagewatchError` if it cannot be read."""
    try:
        with regular(path) as (descriptor, status):
            return _Reader(path).read(descriptor, since, status.st_size)
    except OSError as error:
        raise StagewatchError(f"{path}: {error.strerror}") from error


def of_lines(name: str, lines: Iterable[str]) -> Log:
    """The log in these lines."""
    reader = _Reader(Path(name))
    for number, line in enumerate(lines, 1):
        reader.line(line, f"{reader.log.name}:{number}")
    return reader.end()


def together(logs: Sequence[Log]) -> list[Cause]:
    """The causes of all logs, in an order by their times; without times, by their lines."""
    causes = [cause for log in logs for cause in log.causes]
    if all(cause.time for cause in causes):
        return causes
    tick = 1e-9 if len(logs) == 1 else 0.0  # the order within one file is one of time
    return [replace(cause, time=tick * at) for at, cause in enumerate(causes)]


def came_last(logs: Sequence[Log]) -> list[int]:
    """The ranks for which the others waited, as far as the logs show."""
    waited: dict[int, int] = {}
    for log in logs:
        waited |= log.waited
    behind = sorted(rank for rank, work in waited.items() if work < max(waited.values()))
    ranks = set().union(*(log.ranks for log in logs))
    return behind or (sorted(ranks - waited.keys()) if waited else [])


class _Reader:
    def __init__(self, path: Path) -> None:
        self.log = Log(printable(path.name, 200))
        own = _FILE_RANK.findall(path.name)
        if not own and path.stem in ("stderr", "stdout") and path.parent.name.isdecimal():
            own = [path.parent.name[:6]]  # torchrun's --log-dir: .../attempt_0/3/stderr.log
        self._rank = int(own[-1]) if own else None
        self._streams: dict[int | None, _Stream] = {}
        self._found: list[_Found] = []
        self._open: set[int | None] = set()
        """Ranks of which the next lines are examined in any case."""
        self._looked = 0
        self._time = 0.0
        self._summary: dict[str, str] | None = None

    def read(self, descriptor: int, since: int, size: int) -> Log:
        """All of the file, or its head and its tail."""
        parts = [(since, size)]
        if size - since > HEAD + TAIL:
            parts = [(since, since + HEAD), (size - TAIL, size)]
            self.log.skipped = size - since - HEAD - TAIL
        for begin, end in parts:
            self._looked = 0
            number = 1
            for line in _lines(descriptor, begin, end):
                place = f"{number}" if begin == since == 0 else f"{number} of the last part"
                self.line(line, f"{self.log.name}:{place}")
                number += 1
        return self.end()

    def line(self, raw: str, place: str) -> None:
        """Examine one line."""
        if self._looked > MAX_LOOKED:
            return
        lower = raw.lower()
        worth = any(word in lower for word in WORDS)
        if not (worth or self._open):
            return
        text = _ANSI.sub("", raw) if "\x1b" in raw else raw
        text, rank, node = self._strip(text)
        if rank is not None and len(self.log.ranks) < MAX_RANKS:
            self.log.ranks.add(rank)
        rank = self._rank if rank is None else rank
        key = rank if rank in self._streams or len(self._streams) < MAX_RANKS else None
        stream = self._streams.setdefault(key, _Stream())
        if key in self._open and _PROGRESS.search(text):
            stream.progress += 1
            if not (stream.last and stream.last.progress + SURVIVED > stream.progress):
                self._open.discard(key)
        if self._summary is not None and (told := _SUMMARY.match(text)):
            self._root(told[1], told[2], place)
            return
        if "Root Cause (first observed" in text:
            self._summary = {}
            self._open.add(key)
        elif _CHAINED.search(text):
            stream.chained = True
        elif "Traceback (most recent call last)" in text:
            stream.in_traceback = True
            self._open.add(key)
        elif text[:1].strip() or not stream.in_traceback:
            if not (worth or stream.in_traceback):
                return
            self._looked += len(text)
            means = of_line(text.strip(), stream.in_traceback)
            stream.in_traceback = False
            stream.since_plain += 1
            if means is not None:
                self._open.add(key)
                self._add(means, stream, text, rank, node, place)

    def end(self) -> Log:
        """The log, after the last line."""
        log, found = self.log, [one for one in self._found if not one.explained_below]
        standing = [one for one in found if not one.survived]
        if all(one.cause.kind is not Kind.OWN for one in standing):
            standing += [one for one in found if one.survived][-1:]
        # A plain exception after another error of the same rank is most often of its clean-up.
        spoken: set[int] = set()
        for one in standing:
            if not one.plain or id(one.stream) not in spoken:
                log.causes.append(one.cause)
            if one.cause.kind is not Kind.STATUS:
                spoken.add(id(one.stream))
        return log

    def _strip(self, text: str) -> tuple[str, int | None, str]:
        """The text without its prefixes, and the rank and node that these name; notes the time."""
        rank, node, self._time = None, "", 0.0
        for _ in range(8):
            found = _PREFIX.match(text)
            if found is None or not found.end():
                break
            of = found.groupdict()
            told = of["mpi"] or of["horovod"] or of["torchrun"] or of["srun"]
            rank = int(told) if told else rank
            node = of["ray"] or of["pdsh"] or of["syslog"] or node
            if of["date"]:
                self._time = _unix(of["date"], of["time"], of["fraction"], of["zone"])
            text = text[found.end() :]
        return text, rank, node

    def _add(
        self, means: Meaning, stream: _Stream, text: str, rank: int | None, node: str, place: str
    ) -> None:
        named = _RANK_IN.search(text)
        if rank is None and named is not None:
            rank = int(next(filter(None, named.groups())))
        placed = _NODE_IN.search(text)
        node = next(filter(None, placed.groups())) if placed else node
        if means.death is Death.COLLECTIVE_TIMEOUT and rank is not None:
            self._waits(rank, text)
        chained, stream.chained = stream.chained, False
        message = stream.since_plain < MESSAGE_LINES and means.kind is Kind.OWN and means.sure
        if (chained or (message and not means.plain)) and self._follows(means, stream):
            return
        stream.since_plain = 0 if means.plain else stream.since_plain
        whom = "the job" if rank is None else f"rank {rank}"
        what = printable(text.strip(), MAX_SHOWN)
        cause = Cause(
            means.kind, self._time, whom, what, means.death, means.sure, rank, node, place
        )
        if len(self._found) >= MAX_CAUSES:
            kept = [one for one in self._found if not one.survived]
            self._found = kept[: MAX_CAUSES // 2]
        stream.last = _Found(cause, stream, stream.progress, means.plain)
        self._found.append(stream.last)

    def _follows(self, means: Meaning, stream: _Stream) -> bool:
        """Whether an exception follows from the last one of its rank."""
        last = stream.last
        if last is None:
            return False
        if last.plain and not means.plain:
            last.explained_below = True
            return False
        return True

    def _waits(self, rank: int, text: str) -> None:
        enqueued, sequence = _ENQUEUED.search(text), _SEQUENCE.search(text)
        if len(self.log.waited) < MAX_RANKS and (told := enqueued or sequence):
            known = self.log.waited.get(rank, 0)
            self.log.waited[rank] = max(known, int(told[1][:18]))

    def _root(self, name: str, value: str, place: str) -> None:
        """Read a line of torchrun's summary of the first failure that it has observed."""
        assert self._summary is not None  # noqa: S101 - by its caller
        self._summary[name] = value
        if name != "exitcode":
            return
        told, self._summary = self._summary, None
        means = of_line(f"exitcode: {value}") or of_exception("Failure")
        rank = int(told["rank"][:6]) if told.get("rank", "").isdecimal() else None
        stream = self._streams.setdefault(rank, _Stream())
        self._time = 0.0
        self._add(means, stream, f"exitcode: {value}", rank, told.get("host", ""), place)
        self.log.root = self._found[-1].cause


def _lines(descriptor: int, begin: int, end: int) -> Iterator[str]:
    """The lines of a part of a file, cut at a limit; a carriage return ends a line too."""
    rest = b""
    while begin < end and (chunk := os.pread(descriptor, min(READ, end - begin), begin)):
        begin += len(chunk)
        lines = (rest + chunk.replace(b"\r", b"\n")).split(b"\n")
        rest = lines.pop()[-READ:]
        yield from (line[:MAX_LINE].decode("utf-8", "replace") for line in lines)
    yield rest[:MAX_LINE].decode("utf-8", "replace")


def _unix(date: str, clock: str, fraction: str | None, zone: str | None) -> float:
    """The Unix time of these texts; 0 if they are no time."""
    try:
        zoned = (zone or "+00:00").replace("Z", "+00:00")
        told = datetime.fromisoformat(f"{date.replace('/', '-')}T{clock}")
        offset = datetime.strptime(zoned.replace(":", ""), "%z").utcoffset()
    except ValueError:
        return 0.0
    naive = told.replace(tzinfo=timezone.utc).timestamp()
    seconds = offset.total_seconds() if offset else 0.0
    return naive - seconds + float("0." + fraction[1:] if fraction else 0)
