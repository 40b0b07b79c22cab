"""Bytes that every rank reads and writes, its descendants included."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Metric, Samples
from stagewatch.host.procfs import read_bytes
from stagewatch.node_context import NodeContext
from stagewatch.ranks.families import ProcessFamilies, RankCounter
from stagewatch.ranks.rank import RANK_LABELS, RankKey

BYTES = Metric(
    "rl_rank_io_bytes_total",
    "counter",
    "Bytes the rank and its descendants read and wrote, by direction and layer: call (system "
    "calls, the page cache and pipes included) or storage (what reached or will reach it).",
    (*RANK_LABELS, "direction", "layer"),
)

_SERIES = (("read", "call"), ("write", "call"), ("read", "storage"), ("write", "storage"))
"""In the order of the fields of `IoCounters`."""


class IoCounters(NamedTuple):
    """Bytes a process and all the children it has waited for have read and written."""

    read_calls: int
    """By read(2) and the like, whatever from: also pipes and the page cache."""
    write_calls: int
    read_storage: int
    """Fetched from storage."""
    write_storage: int
    """Made dirty, to be written to storage; what was taken back unwritten is left out."""


def read_io(proc: Path, pid: int) -> IoCounters | None:
    """The counters of a process, see proc_pid_io(5); `None` if it is gone or hidden."""
    raw = read_bytes(f"{proc}/{pid}/io") or b""
    try:
        numbers = dict(line.split(b": ") for line in raw.splitlines())
        return IoCounters(
            int(numbers[b"rchar"]),
            int(numbers[b"wchar"]),
            int(numbers[b"read_bytes"]),
            max(0, int(numbers[b"write_bytes"]) - int(numbers[b"cancelled_write_bytes"])),
        )
    except (ValueError, KeyError):
        return None


class RankIoCollector(Collector):
    """Sums `/proc/<pid>/io` over each rank's family."""

    def __init__(self, families: ProcessFamilies, proc: Path) -> None:
        self._families = families
        self._proc = proc
        self._counter = RankCounter()

    def collect(self) -> Samples:
        members = self._families.look().members
        if not members:
            raise NoData("no rank on this node")
        out = Samples()
        for key, pids in members.items():
            self._rank(out, key, pids)
        self._counter.forget_unseen()
        return out

    def _rank(self, out: Samples, key: RankKey, pids: tuple[int, ...]) -> None:
        family = [read_io(self._proc, pid) for pid in pids]
        if family[0] is None:  # without the rank itself, a sum would say something else
            return
        readable = [counters for counters in family if counters is not None]
        for labels, values in zip(_SERIES, zip(*readable, strict=True), strict=True):
            total = self._counter.update((key, labels), pids[0], sum(values))
            out.add(BYTES, total, *key, *labels)


def _build(options: NoOptions, node: NodeContext) -> RankIoCollector:
    return RankIoCollector(node.families, node.options.proc)


SPEC = CollectorSpec(
    name="rank_io",
    help="bytes every rank reads and writes",
    interval=5.0,
    options=NoOptions,
    build=_build,
)
