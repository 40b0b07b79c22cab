"""Bytes that every rank reads and writes, its descendants included."""

from __future__ import annotations

from pathlib import Path

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Metric, Samples
from stagewatch.host.procfs import read_bytes
from stagewatch.node_context import NodeContext
from stagewatch.ranks.families import ProcessFamilies, RankCounter
from stagewatch.ranks.model import RANK_LABELS, RankKey

BYTES = Metric(
    "rl_rank_io_bytes_total",
    "counter",
    "Bytes the rank and its descendants read and wrote, by direction and layer: call (system "
    "calls, the page cache and pipes included) or storage (what reached or will reach it).",
    (*RANK_LABELS, "direction", "layer"),
)

IoCounters = dict[tuple[str, str], int]
"""Bytes by direction and layer."""


def read_io(proc: Path, pid: int) -> IoCounters | None:
    """Bytes that a process, and the children it has waited for, have read and written.

    See proc_pid_io(5).  `None` if the process is gone or hidden.
    """
    raw = read_bytes(f"{proc}/{pid}/io") or b""
    try:
        counters = {k: int(v) for k, v in (line.split(b": ") for line in raw.splitlines())}
        return {
            ("read", "call"): counters[b"rchar"],
            ("write", "call"): counters[b"wchar"],
            ("read", "storage"): counters[b"read_bytes"],
            # Dirty pages, less those that were taken back before they were written.
            ("write", "storage"): max(
                0, counters[b"write_bytes"] - counters[b"cancelled_write_bytes"]
            ),
        }
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
        for labels in family[0]:
            value = sum(counters[labels] for counters in readable)
            out.add(BYTES, self._counter.update((key, labels), pids[0], value), *key, *labels)


def _build(options: NoOptions, node: NodeContext) -> RankIoCollector:
    return RankIoCollector(node.families, node.options.proc)


SPEC = CollectorSpec(
    name="rank_io",
    help="bytes every rank reads and writes",
    interval=5.0,
    options=NoOptions,
    build=_build,
)
