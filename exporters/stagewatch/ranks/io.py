"""Bytes that every rank reads and writes, its descendants included."""

from __future__ import annotations

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, counter
from stagewatch.ranks.families import RankCounter
from stagewatch.ranks.family_io import FamilyIo
from stagewatch.ranks.model import RANK_LABELS

BYTES = counter(
    "rl_rank_io_bytes_total",
    "Bytes the rank and its descendants read and wrote, by direction and layer: call (system "
    "calls, the page cache and pipes included) or storage (what reached or will reach it).",
    (*RANK_LABELS, "direction", "layer"),
)


class RankIoCollector(Collector):
    """Sums `/proc/<pid>/io` over each rank's family."""

    def __init__(self, io: FamilyIo) -> None:
        self._io = io
        self._counter = RankCounter()

    def collect(self) -> Samples:
        look = self._io.look()
        if not look.families.members:
            raise NoData("no rank on this node")
        out = Samples(denied=look.denied)
        for key, pids in look.families.members.items():
            own = look.by_pid.get(pids[0])
            if own is None:  # without the rank itself, the sum would be wrong
                continue
            readable = [look.by_pid[pid] for pid in pids if pid in look.by_pid]
            for labels in own:
                value = sum(counters[labels] for counters in readable)
                out.add(BYTES, self._counter.update((key, labels), pids[0], value), *key, *labels)
        self._counter.forget_unseen()
        return out


SPEC = Declaration(
    name="rank_io",
    help="bytes every rank reads and writes",
    interval=5.0,
    options=NoOptions,
)
