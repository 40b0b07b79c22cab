"""The `kmsg` collector: GPU errors, out-of-memory kills with the rank they hit, NFS servers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from stagewatch.core.collector import Collector, Declaration
from stagewatch.core.config import option
from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.core.state_file import Past, StateFile, decode, encode
from stagewatch.gpu.xids import Seen, Source, XidLedger, meaning
from stagewatch.host.procfs import TICKS_PER_SECOND
from stagewatch.kernel_log.lines import (
    NfsLine,
    OomCause,
    OomKill,
    parse_identity,
    parse_nfs,
    parse_oom,
    parse_sxid,
    parse_xid,
)
from stagewatch.kernel_log.reader import KernelRecord, Kmsg
from stagewatch.slurm.node_jobs import parse_slurm_cgroup

K = TypeVar("K")

XID = ("gpu", "uuid", "pci_bus_id", "xid", "severity")
XID_ERRORS = counter(
    "gpu_xid_errors_total",
    "GPU errors since boot, from NVML events and the kernel log, each counted once.",
    XID,
)
XID_LAST = gauge(
    "gpu_xid_last_timestamp_seconds",
    "When the error was last seen, as Unix time; increase() cannot see the first of a kind.",
    XID,
)
XID_INFO = gauge(
    "gpu_xid_info",
    "1 for each kind of error seen, with the action to take.",
    ("xid", "action", "meaning"),
)
SWITCH = ("pci_bus_id", "sxid", "severity")
SWITCH_ERRORS = counter(
    "gpu_nvswitch_errors_total",
    "Errors of NVSwitches (SXids) since boot, by the driver's severity: fatal or nonfatal.",
    SWITCH,
)
SWITCH_LAST = gauge(
    "gpu_nvswitch_error_last_timestamp_seconds",
    "When the error was last seen, as Unix time.",
    SWITCH,
)
VICTIM = ("scope", "job_id", "role", "rank")
OOM_KILLS = counter(
    "log_oom_kills_total",
    "Processes killed for lack of memory since boot; scope is cgroup or system; job and rank are "
    "empty if unknown.",
    VICTIM,
)
OOM_LAST = gauge(
    "log_oom_kill_last_timestamp_seconds", "When the last of these processes was killed.", VICTIM
)
NFS_DOWN = gauge(
    "nfs_server_not_responding",
    "1 from the kernel's 'not responding' to its 'OK'; 0 afterwards.",
    ("server",),
)
NFS_SINCE = gauge(
    "nfs_server_not_responding_since_timestamp_seconds",
    "When the server stopped answering, as Unix time; absent while it answers.",
    ("server",),
)
READABLE = gauge(
    "stagewatch_kmsg_readable",
    "1 if the kernel log can be read; without it, GPU errors come from NVML events alone.",
)
SAVE_SECONDS = 10.0
REMEMBER_SECONDS = 5.0
"""The time between two looks at the processes of ranks."""
MAX_VICTIMS = 500
"""Most (job, rank) pairs with a series of their own; the longest ago give way."""
MAX_SERVERS = 200
MAX_SWITCH_ERRORS = 200
MAX_PIDS = 4096
"""Most processes remembered, so that a victim still has a name once it is gone."""


@dataclass(frozen=True, slots=True)
class KmsgOptions:
    """Options of the `kmsg` collector."""

    path: Path = option(Path("/dev/kmsg"), "the kernel log")
    state_file: Path = option(
        Path("/var/lib/stagewatch/kmsg.json"),
        "file that keeps the log position and the counters over a restart",
    )
    from_user_space: bool = option(
        False, "also read lines that programs wrote to the log; for drills with echo > /dev/kmsg"
    )


RankKey = tuple[str, str, str]
"""Job, role and rank that a process belongs to."""
NO_RANK: RankKey = ("", "", "")

Victim = tuple[str, str, str, str]
"""Scope, job, role and rank of killed processes."""


Switch = tuple[str, str, str]
"""Address, number and severity of an NVSwitch's errors."""


@dataclass(slots=True)
class Count:
    """How often something happened, and when it last did (Unix time)."""

    count: int = 0
    last: Past = 0.0


@dataclass(slots=True)
class KmsgState:
    """The state that survives a restart of the agent, in one small file.

    The position in the log and the counters are written together: after a crash the records since
    then are read and counted again.
    """

    boot_id: str
    sequence: int | None = None
    xids: list[Seen] = field(default_factory=list)
    kills: dict[Victim, Count] = field(default_factory=dict)
    nfs: dict[str, Past | None] = field(default_factory=dict)
    """Unix time since which a server has not answered; `None` if it does."""
    switches: dict[Switch, Count] = field(default_factory=dict)


def _note(counts: dict[K, Count], key: K, when: float, most: int) -> None:
    """Count one more; if there are too many, drop the oldest."""
    seen = counts.setdefault(key, Count())
    seen.count += 1
    seen.last = when
    while len(counts) > most:
        del counts[min(counts, key=lambda one: counts[one].last)]


class KmsgCollector(Collector):
    """Follows the kernel log and counts; also exports GPU errors from NVML's events."""

    def __init__(
        self,
        log: Kmsg,
        xids: XidLedger,
        *,
        ranks: Callable[[], Mapping[int, tuple[RankKey, int]]] = dict,
        state_file: Path | None = None,
        boot_id: str = "",
        from_user_space: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ranks`: returns by pid the rank, and when the process began, in ticks since the boot."""
        self._log = log
        self._xids = xids
        self._ranks = ranks
        self._file = StateFile(state_file, durable=False) if state_file else None
        self._from_user_space = from_user_space
        self._clock = clock
        self._pids: OrderedDict[int, tuple[RankKey, float]] = OrderedDict()
        self._causes: OrderedDict[int, str] = OrderedDict()
        kept = self._file.load(partial(decode, KmsgState)) if self._file is not None else None
        # State of an earlier boot is of no use: the log begins again, and so do the counters.
        self._state = kept if kept and kept.boot_id == boot_id else KmsgState(boot_id)
        self._saved_at = self._remembered_at = self._began = float("-inf")
        log.last = self._state.sequence
        xids.restore(self._state.xids)

    def collect(self) -> Samples:
        """All counts since boot, including the records since the last call."""
        self._began = self._clock()
        if self._began - self._remembered_at >= REMEMBER_SECONDS:
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
        """Save the position in the log and the counters."""
        self._saved_at = float("-inf")
        self._save()
        self._log.close()

    def _remember_ranks(self) -> None:
        """Remember the ranks of processes, before one of them is killed."""
        self._remembered_at = self._clock()
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        for pid, (key, ticks) in self._ranks().items():
            self._pids[pid] = key, boot + ticks / TICKS_PER_SECOND
            self._pids.move_to_end(pid)
        while len(self._pids) > MAX_PIDS:
            self._pids.popitem(last=False)

    def _heed(self, record: KernelRecord) -> None:
        line = record.text
        if line.startswith("NVRM"):
            self._gpu(record)
        elif (error := parse_sxid(line)) is not None:
            key = (error.bus, str(error.sxid), "fatal" if error.fatal else "nonfatal")
            _note(self._state.switches, key, record.time, MAX_SWITCH_ERRORS)
        elif (oom := parse_oom(line)) is not None:
            self._oom(oom, record.time)
        elif (nfs := parse_nfs(line)) is not None:
            self._nfs(nfs, record.time)

    def _gpu(self, record: KernelRecord) -> None:
        if (identity := parse_identity(record.text)) is not None:
            bus, uuid = identity
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
        if line.pid not in self._pids and self._remembered_at < self._began:
            self._remember_ranks()  # a record outlasts its rank; once a call
        (job_id, role, rank), began = self._pids.get(line.pid, (NO_RANK, 0.0))
        if began > when + 1.0:  # the number of a process that was killed has been given again
            job_id, role, rank = NO_RANK
        cgroup = parse_slurm_cgroup(self._causes.pop(line.pid, ""))
        if not job_id and cgroup:
            job_id = cgroup.job_id
        _note(self._state.kills, (line.scope, job_id, role, rank), when, MAX_VICTIMS)

    def _nfs(self, line: NfsLine, when: float) -> None:
        """Note a line; the kernel writes one for every mount of the server."""
        servers = self._state.nfs
        if line.server in servers or len(servers) < MAX_SERVERS:
            servers[line.server] = None if line.answers else servers.get(line.server) or when

    def _save(self) -> None:
        if self._file is None or self._clock() - self._saved_at < SAVE_SECONDS:
            return
        self._saved_at = self._clock()
        self._state.sequence = self._log.last
        self._state.xids = list(self._xids)
        self._file.save(encode(self._state))

    def _samples(self) -> Samples:
        out = Samples()
        out.add(READABLE, int(self._xids.log_is_read))
        for seen in self._xids:
            known = meaning(seen.xid)
            key = (*self._xids.identity(seen.bus), seen.bus, seen.xid, seen.severity)
            out.add(XID_ERRORS, seen.count, *key)
            out.add(XID_LAST, seen.last, *key)
            out.add(XID_INFO, 1, seen.xid, known.action, known.meaning)
        for switch, error in self._state.switches.items():
            out.add(SWITCH_ERRORS, error.count, *switch)
            out.add(SWITCH_LAST, error.last, *switch)
        for victim, kill in self._state.kills.items():
            out.add(OOM_KILLS, kill.count, *victim)
            out.add(OOM_LAST, kill.last, *victim)
        for server, since in self._state.nfs.items():
            out.add(NFS_DOWN, int(since is not None), server)
            out.add(NFS_SINCE, since, server)
        return out


SPEC = Declaration(
    name="kmsg",
    help="the kernel log: GPU errors (XIDs), out-of-memory kills, NFS servers that do not answer",
    interval=1.0,
    options=KmsgOptions,
)
