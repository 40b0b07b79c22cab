"""Tasks in uninterruptible sleep, by what they wait for.

The collector reads the main thread of every process and all threads of a rank, since a separate
thread often writes the checkpoint.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import partial

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.host.procfs import TICKS_PER_SECOND, Procfs, number, read_bytes
from stagewatch.ranks.families import ProcessFamilies, RankCounter
from stagewatch.ranks.model import RANK_LABELS

MAX_THREADS = 512
"""The most threads of one rank that are looked at."""

_DELAY_FIELD = 39
"""Index of the block I/O delay, counted from the state (field 3 in proc_pid_stat(5))."""

BLOCKED = gauge(
    "io_blocked_tasks",
    "Tasks in uninterruptible sleep by what they wait for: nfs, fuse, lustre, page, block, "
    "journal, memory, gpu, lock, other, or unknown where the kernel does not say.",
    ("class",),
)
DELAY = counter(
    "rl_rank_block_io_delay_seconds_total",
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


def waits_for(channel: str) -> str:
    """The class of the kernel function that a task sleeps in; its name differs between kernels."""
    if not channel:
        return "unknown"
    return next((name for name, pattern in _CLASSES.items() if pattern.search(channel)), "other")


def _tasks(proc: Procfs, pid: int) -> list[tuple[int, str, float]]:
    """The threads of a process: number, state, and seconds of waiting for block devices.

    The seconds stay 0 unless sysctl kernel.task_delayacct is on.
    """
    try:
        tids = os.listdir(f"{proc.root}/{pid}/task")[:MAX_THREADS]  # noqa: PTH208 - hundreds
    except OSError:
        return []
    tasks = []
    for tid in tids:
        raw = read_bytes(f"{proc.root}/{pid}/task/{tid}/stat") or b""
        fields = raw.rpartition(b")")[2].split()
        if len(fields) > _DELAY_FIELD:
            delay = number(fields[_DELAY_FIELD]) / TICKS_PER_SECOND
            tasks.append((int(tid), fields[0].decode("ascii", "replace"), delay))
    return tasks


class BlockedTasksCollector(Collector):
    """Counts tasks in state D by class, and how long ranks have waited for block devices."""

    def __init__(self, families: ProcessFamilies, proc: Procfs) -> None:
        self._families = families
        self._proc = proc
        self._delays = RankCounter()

    def collect(self) -> Samples:
        families = self._families.look()
        accounting = read_bytes(f"{self._proc.root}/sys/kernel/task_delayacct") or b""
        out = Samples()
        blocked: list[tuple[int, int]] = []
        leaders = {leader: key for key, (leader, *_) in families.members.items()}
        looks = self._proc.each([(pid, partial(_tasks, self._proc, pid)) for pid in leaders])
        for (leader, key), tasks in zip(leaders.items(), looks, strict=True):
            if not tasks:
                continue
            blocked += [(leader, tid) for tid, state, _ in tasks if state == "D"]
            if accounting.strip() == b"1":
                delay = sum(seconds for *_, seconds in tasks)
                out.add(DELAY, self._delays.update(key, leader, delay), *key)
        self._delays.forget_unseen()
        blocked += [
            (pid, pid)
            for pid, process in families.processes.items()
            if process.state == "D" and pid not in leaders
        ]
        by_class = Counter(map(waits_for, self._proc.wait_channels(blocked).values()))
        for name in CLASSES:
            out.add(BLOCKED, by_class[name], name)
        return out


SPEC = Declaration(
    name="blocked_tasks",
    help="tasks in uninterruptible sleep by what they wait for",
    interval=5.0,
    options=NoOptions,
)
