"""The kernel log: GPU errors, out-of-memory kills with the rank they hit, NFS servers."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stagewatch.core.collector import Collector, CollectorSpec
from stagewatch.core.config import option
from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Samples
from stagewatch.gpu.xids import Source, XidLedger, meaning
from stagewatch.kernel_log.lines import (
    OomCause,
    OomKill,
    is_lock_reclaim_failure,
    parse_identity,
    parse_nfs,
    parse_oom,
    parse_xid,
)
from stagewatch.kernel_log.metrics import (
    LOST,
    NFS_DOWN,
    NFS_OUTAGES,
    NFS_RECLAIM,
    NFS_SINCE,
    OOM_KILLS,
    OOM_LAST,
    READABLE,
    SAVED,
    XID_ERRORS,
    XID_INFO,
    XID_LAST,
)
from stagewatch.kernel_log.reader import KernelRecord, Kmsg
from stagewatch.kernel_log.state import KmsgState, NfsServer, OomKills, load, save
from stagewatch.slurm.cgroup_paths import parse_slurm_cgroup

if TYPE_CHECKING:
    from stagewatch.node_context import NodeContext
    from stagewatch.ranks.rank import Rank

SAVE_SECONDS = 10.0
MAX_VICTIMS = 500
"""Most (job, rank) pairs with a series of their own; the longest ago give way."""
MAX_SERVERS = 200
MAX_PIDS = 4096
"""Most processes remembered, so that a victim still has a name once it is gone."""


@dataclass(frozen=True, slots=True)
class KmsgOptions:
    """Options of the `kmsg` collector."""

    path: Path = option(Path("/dev/kmsg"), "the kernel log")
    state_file: Path = option(
        Path("/var/lib/stagewatch/kmsg.json"),
        "where the place in the log and the counters are kept over a restart",
    )
    from_user_space: bool = option(
        False, "also heed lines that programs wrote to the log; for drills with echo > /dev/kmsg"
    )


class KmsgCollector(Collector):
    """Follows the kernel log and keeps count; owns the counters of GPU errors of both sources."""

    def __init__(
        self,
        log: Kmsg,
        xids: XidLedger,
        *,
        ranks: Callable[[], Iterable[Rank]] = tuple,
        descendants: Callable[[], Mapping[int, tuple[str, str, str]]] = dict,
        state_file: Path | None = None,
        boot_id: str = "",
        from_user_space: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._xids = xids
        self._ranks = ranks
        self._descendants = descendants
        self._state_file = state_file
        self._from_user_space = from_user_space
        self._clock = clock
        self._pids: OrderedDict[int, tuple[str, str, str]] = OrderedDict()
        self._causes: OrderedDict[int, str] = OrderedDict()
        self._state = load(state_file, boot_id) if state_file else KmsgState(boot_id)
        self._saved_at = float("-inf")
        self._saved = False
        log.last = self._state.sequence
        xids.restore(self._state.xids)

    def collect(self) -> Samples:
        """Read on, then everything counted since boot."""
        self._remember_ranks()
        try:
            for record in self._log.read():
                if record.facility == 0 or self._from_user_space:
                    self._heed(record)
            self._xids.log_is_read = True
        except SourceError:
            self._xids.log_is_read = False
        self._save()
        return self._samples()

    def close(self) -> None:
        """Keep the place for the next start."""
        self._saved_at = float("-inf")
        self._save()
        self._log.close()

    def _remember_ranks(self) -> None:
        pids = {rank.pid: rank.key for rank in self._ranks()}
        for pid, key in (pids | dict(self._descendants())).items():
            self._pids[pid] = key
            self._pids.move_to_end(pid)
        while len(self._pids) > MAX_PIDS:
            self._pids.popitem(last=False)

    def _heed(self, record: KernelRecord) -> None:
        text = record.text
        if text.startswith("NVRM"):
            self._gpu(record)
        elif (oom := parse_oom(text)) is not None:
            self._oom(oom, record.time)
        elif (nfs := parse_nfs(text)) is not None:
            if nfs.server in self._state.nfs or len(self._state.nfs) < MAX_SERVERS:
                self._state.nfs.setdefault(nfs.server, NfsServer()).said(nfs.answers, record.time)
        elif is_lock_reclaim_failure(text):
            self._state.reclaim_failures += 1

    def _gpu(self, record: KernelRecord) -> None:
        if (identity := parse_identity(record.text)) is not None:
            bus, uuid = identity
            if not self._xids.knows(bus):
                self._xids.identify(bus, "", uuid)
        elif (line := parse_xid(record.text)) is not None:
            source: Source = "text" if line.plain else "kmsg"
            self._xids.note(source, line.bus, line.xid, record.time, nonfatal=line.nonfatal)

    def _oom(self, line: OomCause | OomKill, when: float) -> None:
        if isinstance(line, OomCause):
            self._causes[line.pid] = line.cgroup
            while len(self._causes) > MAX_VICTIMS:
                self._causes.popitem(last=False)
            return
        job_id, role, rank = self._pids.get(line.pid, ("", "", ""))
        if not job_id and (cgroup := parse_slurm_cgroup(self._causes.pop(line.pid, ""))):
            job_id = cgroup.job_id
        kills = self._state.kills
        kill = kills.setdefault((line.scope, job_id, role, rank), OomKills())
        kill.count += 1
        kill.last = when
        while len(kills) > MAX_VICTIMS:
            del kills[min(kills, key=lambda victim: kills[victim].last)]

    def _save(self) -> None:
        if self._state_file is None or self._clock() - self._saved_at < SAVE_SECONDS:
            return
        self._saved_at = self._clock()
        self._state.sequence = self._log.last
        self._state.xids = list(self._xids)
        self._saved = save(self._state_file, self._state)

    def _samples(self) -> Samples:
        out = Samples()
        out.add(READABLE, int(self._xids.log_is_read))
        out.add(LOST, self._log.lost)
        out.add(SAVED, int(self._saved))
        for seen in self._xids:
            known = meaning(seen.xid)
            key = (*self._xids.identity(seen.bus), seen.bus, seen.xid, seen.severity)
            out.add(XID_ERRORS, seen.count, *key)
            out.add(XID_LAST, seen.last, *key)
            out.add(XID_INFO, 1, seen.xid, known.action, known.meaning)
        for victim, kill in self._state.kills.items():
            out.add(OOM_KILLS, kill.count, *victim)
            out.add(OOM_LAST, kill.last, *victim)
        for name, server in self._state.nfs.items():
            out.add(NFS_DOWN, int(server.since is not None), name)
            out.add(NFS_SINCE, server.since, name)
            out.add(NFS_OUTAGES, server.outages, name)
        out.add(NFS_RECLAIM, self._state.reclaim_failures)
        return out


def _build(options: KmsgOptions, context: NodeContext) -> KmsgCollector:
    boot_id = ""
    with contextlib.suppress(OSError):
        boot_id = (context.options.proc / "sys/kernel/random/boot_id").read_text().strip()
    return KmsgCollector(
        Kmsg(options.path),
        context.xids,
        ranks=context.ranks.ranks,
        descendants=lambda: context.families.look().rank_of,
        state_file=options.state_file,
        boot_id=boot_id,
        from_user_space=options.from_user_space,
    )


SPEC = CollectorSpec(
    name="kmsg",
    help="the kernel log: GPU errors (XIDs), out-of-memory kills, NFS servers that do not answer",
    interval=1.0,
    options=KmsgOptions,
    build=_build,
)
