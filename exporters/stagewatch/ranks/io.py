"""What every rank reads and writes, with all the processes it has started."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Metric, Samples
from stagewatch.host.process_files import read_io
from stagewatch.ranks.counter import RankCounter
from stagewatch.ranks.index import RANK_LABELS, RankKey
from stagewatch.ranks.process_families import ProcessFamilies

if TYPE_CHECKING:
    from stagewatch.node_context import NodeContext

BYTES = Metric(
    "rl_rank_io_bytes_total",
    "counter",
    "Bytes the rank and its descendants read and wrote, by direction and layer: call (system "
    "calls, the page cache and pipes included) or storage (what reached or will reach it).",
    (*RANK_LABELS, "direction", "layer"),
)

_SERIES = (("read", "call"), ("write", "call"), ("read", "storage"), ("write", "storage"))
"""In the order of the fields of `IoCounters`."""


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
        found = [read_io(self._proc, pid) for pid in pids]
        readable = [astuple(counters) for counters in found if counters is not None]
        if found[0] is None:  # without the rank itself, a sum would say something else
            return
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
