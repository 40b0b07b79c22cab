"""Memory, descriptors and tasks of node and ranks against their limits; OOM kills; zombies."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.host.cgroups import Cgroups, oom_kills
from stagewatch.host.guarded import Files
from stagewatch.host.procfs import read_bytes
from stagewatch.ranks.families import Families, ProcessFamilies
from stagewatch.ranks.model import RANK_LABELS, RankKey

HOLD_SECONDS = 300.0
"""How long the OOM kills of a rank's cgroup are shown after its end."""

OOM_KILLS = counter(
    "os_oom_kills_total",
    "Processes of this node ended by the OOM killer since boot, those in memory cgroups included "
    "(oom_kill in /proc/vmstat).",
)
TASKS = gauge(
    "os_tasks",
    "Threads of the whole node; near os_tasks_limit no process can start another.",
)
TASKS_LIMIT = gauge(
    "os_tasks_limit", "Threads the node may have (kernel.threads-max and kernel.pid_max)."
)
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
RANK_TASKS = gauge(
    "rl_rank_cgroup_tasks",
    "Threads in the rank's cgroup (or the one above it with the least room); at the limit"
    " the rank cannot start a thread or process.",
    RANK_LABELS,
)
RANK_TASKS_LIMIT = gauge(
    "rl_rank_cgroup_tasks_limit",
    "Limit of that cgroup; absent where there is none.",
    RANK_LABELS,
)
RANK_THROTTLED = counter(
    "rl_rank_cgroup_throttled_seconds_total",
    "Time that a CPU limit has stopped the rank's cgroup, or the one above it stopped most; "
    "absent where there is no limit.",
    RANK_LABELS,
)
RANK_FILES = gauge(
    "rl_rank_open_files",
    "Open descriptors of the rank's process; at the limit it can open neither file nor socket.",
    RANK_LABELS,
)
RANK_FILES_LIMIT = gauge(
    "rl_rank_open_files_limit", "Soft limit of descriptors of that process.", RANK_LABELS
)
RANK_PROCESSES = gauge(
    "rl_rank_processes",
    "Processes of the rank: its own and its descendants, such as workers of a data loader.",
    RANK_LABELS,
)
RANK_ZOMBIES = gauge(
    "rl_rank_zombies",
    "Of those, processes that have ended and are not reaped.",
    RANK_LABELS,
)


class ProcessesCollector(Collector):
    """Shows the node as a whole and every rank."""

    def __init__(
        self,
        families: ProcessFamilies,
        proc: Path,
        files: Files,
        *,
        sys: Path = Path("/sys"),
        cgroups: Cgroups | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._families = families
        self._proc = proc
        self._files = files
        self._sys = sys
        self._cgroups = cgroups or Cgroups(proc)
        self._clock = clock
        self._oom_files: dict[RankKey, tuple[Path, float]] = {}

    def collect(self) -> Samples:
        families = self._families.look()
        files: Mapping[int, bytes | None] = {}
        with contextlib.suppress(SourceError):
            files = self._files.read("descriptors", [pids[0] for pids in families.members.values()])
        out = Samples(denied=sum(count is None for count in files.values()))
        self._node(out)
        for key, pids in families.members.items():
            self._rank(out, key, pids, families)
            if count := files.get(pids[0]):
                out.add(RANK_FILES, int(count), *key)
                out.add(RANK_FILES_LIMIT, _files_limit(self._proc, pids[0]), *key)
        self._oom_kills(out, families.members)
        return out

    def _node(self, out: Samples) -> None:
        for line in self._words("vmstat"):
            if line[0] == b"oom_kill":
                out.add(OOM_KILLS, int(line[1]))
        for line in self._words("loadavg"):
            out.add(TASKS, int(line[3].partition(b"/")[2]))
        for place, pages in _numa_pages(self._sys).items():
            out.add(NUMA_PAGES, pages, place)
        names = ("sys/kernel/threads-max", "sys/kernel/pid_max")
        limits = [int(word) for name in names for [word] in self._words(name)]
        out.add(TASKS_LIMIT, min(limits, default=None))

    def _rank(self, out: Samples, key: RankKey, pids: tuple[int, ...], families: Families) -> None:
        rank = pids[0]
        out.add(RANK_PROCESSES, len(pids), *key)
        states = Counter(families.processes[pid].state for pid in pids)
        out.add(RANK_ZOMBIES, states["Z"], *key)
        for controller, used, limit in (
            ("memory", RANK_MEMORY, RANK_MEMORY_LIMIT),
            ("pids", RANK_TASKS, RANK_TASKS_LIMIT),
        ):
            usage = self._cgroups.usage(rank, controller)
            if usage is not None:
                out.add(used, usage.used, *key)
                out.add(limit, usage.limit, *key)
        out.add(RANK_THROTTLED, self._cgroups.throttled_seconds(rank), *key)

    def _oom_kills(self, out: Samples, members: Mapping[RankKey, tuple[int, ...]]) -> None:
        """Add the OOM kills of live ranks and of those that have just ended, perhaps as victims."""
        now = self._clock()
        for key, pids in members.items():
            file = self._cgroups.oom_file(pids[0])
            if file is not None:
                self._oom_files[key] = (file, now + HOLD_SECONDS)
        for key, (file, until) in list(self._oom_files.items()):
            kills = oom_kills(file)
            if kills is None or now > until:
                del self._oom_files[key]
            out.add(RANK_OOM_KILLS, kills, *key)

    def _words(self, name: str) -> list[list[bytes]]:
        """The words of every line of a file of /proc, empty where it cannot be read."""
        return [line.split() for line in (read_bytes(f"{self._proc}/{name}") or b"").splitlines()]


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


def _files_limit(proc: Path, pid: int) -> int | None:
    """The soft limit of open descriptors of a process; `None` for no limit."""
    for line in (read_bytes(f"{proc}/{pid}/limits") or b"").splitlines():
        if line.startswith(b"Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else None
    return None


SPEC = Declaration(
    name="processes",
    help="memory, descriptors and tasks against their limits; OOM kills; zombies",
    interval=5.0,
    options=NoOptions,
)
