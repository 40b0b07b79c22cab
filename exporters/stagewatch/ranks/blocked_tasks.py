"""Tasks in uninterruptible sleep, and what they wait for.

The main thread of every process is looked at, and every thread of a rank: a checkpoint is often
written by a thread of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.exposition import Metric, Samples
from stagewatch.host.process_files import delays_are_counted, read_tasks
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.counter import RankCounter
from stagewatch.ranks.index import RANK_LABELS, RankKey
from stagewatch.ranks.process_families import ProcessFamilies

if TYPE_CHECKING:
    from stagewatch.node_context import NodeContext

MAX_THREADS = 512
"""Threads looked at of one rank."""

BLOCKED = Metric(
    "io_blocked_tasks",
    "gauge",
    "Tasks in uninterruptible sleep by what they wait for: nfs, fuse, lustre, page, block, "
    "journal, memory, gpu, lock, other, or unknown where the kernel does not say.",
    ("class",),
)
RANK_BLOCKED = Metric(
    "rl_rank_blocked_tasks",
    "gauge",
    "The same for the rank's threads and the processes it has started; absent when there is none.",
    (*RANK_LABELS, "class"),
)
DELAY = Metric(
    "rl_rank_block_io_delay_seconds_total",
    "counter",
    "Time the rank's threads waited for block devices; absent unless sysctl "
    "kernel.task_delayacct is 1.",
    RANK_LABELS,
)

_CLASSES = {
    name: re.compile(pattern)
    for name, pattern in {
        "lustre": r"^(cl|ll|osc|mdc|lov|lmv)_|ptlrpc|ldlm|lustre",
        "nfs": r"nfs|rpc_|xprt_",
        "fuse": r"fuse_|request_wait_answer",
        "gpu": r"^_?nv\d|^nv_|^nvidia|uvm_|^os_acquire|^rm_",
        "page": r"folio_wait|wait_on_page|filemap_|writeback|balance_dirty",
        "memory": r"mem_cgroup|reclaim|shrink_|throttle|congestion|swap",
        "journal": r"jbd2|^xfs_|^btrfs_|^ext4_|^xlog_",
        "block": r"io_schedule|^blk_|bit_wait_io|submit_bio|^wbt_|^rq_qos|dio_|iomap_dio|^dm_|^md_",
        "lock": r"rwsem|mutex|^down_|^__down|semaphore",
    }.items()
}
CLASSES = (*_CLASSES, "other", "unknown")


def wait_class(channel: str) -> str:
    """The class of a kernel function slept in; its name differs from one kernel to the next."""
    if not channel:
        return "unknown"
    return next((name for name, known in _CLASSES.items() if known.search(channel)), "other")


class BlockedTasksCollector(Collector):
    """Counts tasks in state D, by class and by rank."""

    def __init__(self, families: ProcessFamilies, proc: Procfs) -> None:
        self._families = families
        self._proc = proc
        self._delays = RankCounter()

    def collect(self) -> Samples:
        families = self._families.look()
        counted = delays_are_counted(self._proc.root)
        out = Samples()
        waits: list[tuple[RankKey | None, str]] = []
        leaders = set()
        for key, (leader, *_) in families.members.items():
            leaders.add(leader)
            tasks = read_tasks(self._proc.root, leader, MAX_THREADS)
            waits += [(key, self._wait(leader, task.tid)) for task in tasks if task.state == "D"]
            if counted and tasks:
                delay = sum(task.block_delay_seconds for task in tasks)
                out.add(DELAY, self._delays.update(key, leader, delay), *key)
        self._delays.forget_unseen()
        for pid, process in families.processes.items():
            if process.state == "D" and pid not in leaders:
                waits.append((families.rank_of.get(pid), self._wait(pid, pid)))
        by_class = Counter(name for _, name in waits)
        for name in CLASSES:
            out.add(BLOCKED, by_class[name], name)
        for (owner, name), count in Counter(waits).items():
            if owner is not None:
                out.add(RANK_BLOCKED, count, *owner, name)
        return out

    def _wait(self, pid: int, tid: int) -> str:
        return wait_class(self._proc.wait_channel(pid, tid))


def _build(options: NoOptions, node: NodeContext) -> BlockedTasksCollector:
    return BlockedTasksCollector(node.families, node.proc)


SPEC = CollectorSpec(
    name="blocked_tasks",
    help="tasks in uninterruptible sleep by what they wait for",
    interval=5.0,
    options=NoOptions,
    build=_build,
)
