"""Memory of ranks against its limit, OOM kills, CPU limits; pages of another NUMA node."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.host.cgroups import Cgroups, oom_kills
from stagewatch.host.procfs import read_bytes
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.model import RANK_LABELS, RankKey

HOLD_SECONDS = 300.0
"""How long the OOM kills of a rank's cgroup are shown after its end."""

NUMA_PAGES = counter(
    "os_numa_pages_total",
    "Pages of memory that processes took on the NUMA node of their processor (place local) or on "
    "another one (other).",
    ("place",),
)
RANK_OOM_KILLS = counter(
    "rl_rank_cgroup_oom_kills_total",
    "Processes ended by the OOM killer in the memory cgroup the rank runs in, which it may share "
    "with others; shown for five minutes more when the rank is gone. The victim is named by "
    "log_oom_kills_total.",
    RANK_LABELS,
)
RANK_MEMORY = gauge(
    "rl_rank_cgroup_memory_bytes",
    "Memory charged to the rank's cgroup (or the one above it with the least room).",
    RANK_LABELS,
)
RANK_MEMORY_LIMIT = gauge(
    "rl_rank_cgroup_memory_limit_bytes",
    "Limit of that cgroup; absent where there is none.",
    RANK_LABELS,
)
RANK_THROTTLED = counter(
    "rl_rank_cgroup_throttled_seconds_total",
    "Time that a CPU limit has stopped the rank's cgroup, or the one above it stopped most; "
    "absent where there is no limit.",
    RANK_LABELS,
)


class ProcessesCollector(Collector):
    """Shows the control groups of every rank, and the node's memory."""

    def __init__(
        self,
        families: ProcessFamilies,
        proc: Path,
        *,
        sys: Path = Path("/sys"),
        cgroups: Cgroups | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._families = families
        self._sys = sys
        self._cgroups = cgroups or Cgroups(proc)
        self._clock = clock
        self._oom_files: dict[RankKey, tuple[Path, float]] = {}

    def collect(self) -> Samples:
        out = Samples()
        out.add_all(NUMA_PAGES, _numa_pages(self._sys))
        members = self._families.look().members
        in_groups: defaultdict[bytes, list[RankKey]] = defaultdict(list)
        for key, (rank, *_) in members.items():
            in_groups[self._cgroups.of(rank)].append(key)
        for groups, keys in in_groups.items():  # ranks of a job usually share their groups
            memory = self._cgroups.memory(groups)
            throttled = self._cgroups.throttled_seconds(groups)
            for key in keys:
                if memory is not None:
                    out.add(RANK_MEMORY, memory.used, *key)
                    out.add(RANK_MEMORY_LIMIT, memory.limit, *key)
                out.add(RANK_THROTTLED, throttled, *key)
        self._oom_kills(out, in_groups)
        if not out.families:
            raise NoData("no rank on this node")
        return out

    def _oom_kills(self, out: Samples, in_groups: Mapping[bytes, list[RankKey]]) -> None:
        """Add the OOM kills of live ranks and of those that have just ended, perhaps as victims."""
        now = self._clock()
        for groups, keys in in_groups.items():
            file = self._cgroups.oom_file(groups)
            if file is not None:
                self._oom_files |= dict.fromkeys(keys, (file, now + HOLD_SECONDS))
        count = cache(oom_kills)
        for key, (file, until) in list(self._oom_files.items()):
            kills = count(file)
            if kills is None or now > until:
                del self._oom_files[key]
            out.add(RANK_OOM_KILLS, kills, *key)


def _numa_pages(sys: Path) -> Counter[str]:
    """Pages by where they were taken, over all NUMA nodes; empty on a node that has only one.

    See https://docs.kernel.org/admin-guide/numastat.html; its files need no lock of any process.
    """
    pages: Counter[str] = Counter()
    files = sorted(sys.glob("devices/system/node/node*/numastat"))
    for file in files if len(files) > 1 else ():
        for line in (read_bytes(str(file)) or b"").splitlines():
            name, _, count = line.partition(b" ")
            if name in (b"local_node", b"other_node") and count.isdigit():
                pages[name.decode().removesuffix("_node")] += int(count)
    return pages


SPEC = Declaration(
    name="processes",
    help="memory of ranks against its limit, OOM kills, CPU limits",
    interval=5.0,
    options=NoOptions,
)
