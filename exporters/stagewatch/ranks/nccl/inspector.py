"""Reads the files of NCCL Inspector, the profiler plugin that NCCL ships from 2.28 on.

Inspector reports operations that have ended, in one of two forms (by its sources in NCCL 2.28 to
2.31): text for Prometheus (from 2.29.3), with means over half a minute or more; or JSON, a line for
each operation, in formats 4.0 to 4.3.  Users write the files: unknown fields are skipped, and
missing ones are counted."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from stagewatch.core.words import printable

MAX_LINES = 20_000
"""The most lines of one file that a look reads."""
MAX_NAME = 64
_MAX_SECONDS, _MAX_BANDWIDTH = 1e5, 1e15

_METRICS = {
    "nccl_algorithm_bandwidth_gbs": ("collective", 0.0),
    "nccl_bus_bandwidth_gbs": ("collective", 1e9),
    "nccl_collective_exec_time_microseconds": ("collective", 1e-6),
    "nccl_p2p_bus_bandwidth_gbs": ("p2p_operation", 1e9),
    "nccl_p2p_exec_time_microseconds": ("p2p_operation", 1e-6),
    "nccl_collectives_total": ("", 0.0),
    "nccl_collectives_dropped_total": ("", 0.0),
    "nccl_p2p_total": ("", 0.0),
    "nccl_p2p_dropped_total": ("", 0.0),
}
"""By metric, the label that names the operation, and the unit; metrics with 0 are not kept."""
_SAMPLE = re.compile(r"(nccl_[a-z0-9_]{1,60})\{(.{1,1000})\} (\S{1,30})")
_LABEL = re.compile(r'([a-z0-9_]{1,20})="([^"]{0,200})"')
_PASSED_OVER = frozenset(["dump_stats", "p2p_perf", "proxy_trace"])
"""Kinds of JSON lines that are no collectives; sends and receives have no sequence number."""


@dataclass(frozen=True, slots=True, order=True)
class Operations:
    """Operations of one kind and size in one communicator."""

    communicator: str
    """Its name, else its hash; `unknown` in Prometheus' text without a name."""
    op: str
    size: str
    """A range of bytes, as Inspector prints it."""


@dataclass(slots=True)
class Measured:
    """The measurements; zero for those that are missing."""

    bandwidth: float = 0.0
    """Bytes per second on the bus, as nccl-tests counts them."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """One collective of one rank, from a line of JSON."""

    pid: int
    """In the PID namespace of the rank."""
    communicator: str
    member: int
    members: int
    op: str
    sequence: int
    size: int
    seconds: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Reporter:
    """The rank whose collectives lines of JSON report.  Every line names it; in format 4.3, only
    the first line of a dump."""

    pid: int
    """In the PID namespace of the rank."""
    communicator: str
    member: int
    members: int


@dataclass(slots=True)
class Report:
    """The content of a file."""

    measured: dict[Operations, Measured] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    reporter: Reporter | None = None
    """The reporter of the last line."""
    lacks: Counter[str] = field(default_factory=Counter)
    """Number of samples or lines in which a field was missing or wrong, by field."""


def read_text(text: str) -> Report:
    """The report in Prometheus' text."""
    report = Report()
    for line in text.splitlines()[:MAX_LINES]:
        found = _SAMPLE.fullmatch(line.strip())
        if found is None or found[1] not in _METRICS:
            report.lacks["sample"] += bool(line.strip()) and not line.startswith("#")
            continue
        name, unit = _METRICS[found[1]]
        if not unit:
            continue
        labels = dict(_LABEL.findall(found[2]))
        if "comm_id" in labels:  # NCCL 2.29 tells no name
            labels.setdefault("comm_name", labels["comm_id"])
        value = _number(found[3], _MAX_BANDWIDTH / unit)
        lacking = [one for one in (name, "message_size", "comm_name") if one not in labels]
        if lacking or value is None:
            report.lacks.update(lacking or ["value"])
            continue
        key = Operations(*(_name(labels[one]) for one in ("comm_name", name, "message_size")))
        one = report.measured.setdefault(key, Measured())
        if unit < 1:
            one.seconds = value * unit
        else:
            one.bandwidth = value * unit
    return report


def read_lines(raw: bytes, reporter: Reporter | None = None) -> Report:
    """The report in whole lines of JSON; `reporter`: that of the lines before."""
    report = Report(reporter=reporter)
    for line in raw.splitlines()[:MAX_LINES]:
        try:
            content = json.loads(line)
            if "header" in content:
                report.reporter = None  # after a damaged line, the reporter is unknown
                report.reporter = _reporter(content)
            if not (_PASSED_OVER & content.keys()):
                report.ended.append(_ended(content["coll_perf"], report.reporter))
        except KeyError as error:
            report.lacks[str(error.args[0])[:MAX_NAME]] += 1
        except (AttributeError, ValueError, TypeError, RecursionError):
            report.lacks["line"] += bool(line.strip())
    return report


def _reporter(content: Any) -> Reporter:
    """The reporter of a line.  Raises `KeyError` with a missing field, `ValueError` or `TypeError`
    for a wrong one."""
    header = content["header"]
    name = header.get("comm_name")
    named = isinstance(name, str) and name not in ("", "unknown")
    return Reporter(
        _whole(content["metadata"]["pid"]),
        _name(name if named else _text(header["id"])),
        _whole(header["rank"]),
        _whole(header["n_ranks"]),
    )


def _ended(done: Any, reporter: Reporter | None) -> Ended:
    """The collective of a line.  Raises as `_reporter` does."""
    if reporter is None:
        raise KeyError("header")
    return Ended(
        *(reporter.pid, reporter.communicator, reporter.member, reporter.members),
        _name(_text(done["coll"])),
        _whole(done["coll_sn"]),
        _whole(done["coll_msg_size_bytes"]),
        _real(done["coll_exec_time_us"], _MAX_SECONDS * 1e6) / 1e6,
        _real(done.get("coll_busbw_gbs", 0.0), _MAX_BANDWIDTH / 1e9) * 1e9,
    )


def _name(text: str) -> str:
    return printable(text[:MAX_NAME])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError
    return value


def _real(value: Any, most: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError
    return float(value)


def _number(text: str, most: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= most else None


@dataclass(slots=True)
class Lateness:
    """How often a rank came last to a compared collective, and by how much."""

    compared: int = 0
    last: int = 0
    seconds: float = 0.0
    """Sum over these collectives: how much longer the median of the others was in them."""


Key = tuple[str, str, int]
"""Communicator, operation, and the sequence number among collectives of that operation."""


class Arrivals:
    """Finds the rank that came last to each collective, among the reporting ranks.

    The rank that comes last waits least, so its time in the collective is the shortest.
    """

    MAX_OPEN = 4096
    MARGIN = 0.2
    """The shortest time only counts if it is below the median by this share of it."""

    def __init__(self) -> None:
        self._times: dict[Key, dict[int, float]] = {}
        self._members: dict[str, set[int]] = {}
        self.ranks: dict[tuple[int, str], Lateness] = {}
        """Counts by pid and communicator."""

    def add(self, one: Ended) -> None:
        """Add one collective of one rank."""
        key = one.communicator, one.op, one.sequence
        self._members.setdefault(one.communicator, set()).add(one.pid)
        self._times.setdefault(key, {})[one.pid] = one.seconds
        while len(self._times) > self.MAX_OPEN:
            del self._times[next(iter(self._times))]

    def compare(self, living: set[int]) -> None:
        """Compare the collectives that all live ranks have reported, and forget other ranks."""
        self._members = {
            name: here for name, those in self._members.items() if (here := those & living)
        }
        self.ranks = {key: one for key, one in self.ranks.items() if key[0] in living}
        for key, times in list(self._times.items()):
            if times.keys() >= self._members.get(key[0], set()):
                del self._times[key]
                self._note(key[0], {pid: one for pid, one in times.items() if pid in living})

    def _note(self, communicator: str, times: Mapping[int, float]) -> None:
        if len(times) < 2:
            return
        first = min(times, key=lambda pid: (times[pid], pid))
        usual = median(seconds for pid, seconds in times.items() if pid != first)
        for pid in times:
            self.ranks.setdefault((pid, communicator), Lateness()).compared += 1
        if times[first] < (1 - self.MARGIN) * usual:
            late = self.ranks[first, communicator]
            late.last += 1
            late.seconds += usual - times[first]


def means(ended: list[Ended]) -> Iterator[tuple[int, Operations, Measured]]:
    """The means of ended collectives by process, as Prometheus' text has them."""
    sums: dict[tuple[int, Operations], list[float]] = {}
    for one in ended:
        size = f"{1 << max(0, one.size.bit_length() - 1)}B"
        those = sums.setdefault((one.pid, Operations(one.communicator, one.op, size)), [0, 0, 0])
        those[0] += 1
        those[1] += one.seconds
        those[2] += one.bandwidth
    for (pid, what), (count, seconds, bandwidth) in sums.items():
        yield pid, what, Measured(bandwidth / count, seconds / count)
