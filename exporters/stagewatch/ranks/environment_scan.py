"""Finds ranks without a stage record, by the variables that their launcher set."""

from __future__ import annotations

import _thread
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from stagewatch.core.errors import StagewatchError
from stagewatch.core.shortage import SHORTAGES, is_shortage
from stagewatch.core.words import printable
from stagewatch.host.guarded import Files, GuardedFiles
from stagewatch.host.procfs import Procfs, variables
from stagewatch.identity import VARIABLES, identify, rank_variables
from stagewatch.ranks.model import Rank, RankKey
from stagewatch.ranks.owners import contradicts, of_another, slurm_job

log = logging.getLogger(__name__)

SCAN_SECONDS = 5.0
"""How often the scan looks for new processes."""
RESCAN_SECONDS = 60.0
"""How often the scan rereads all processes: exec changes the environment of a process."""
GIVE_UP_SECONDS = 60.0
"""How long a scan may take before another is begun."""
PATIENCE_SECONDS = 5.0
"""How long a command, which looks once, waits for its scan."""
MAX_ANCESTORS = 32
MAX_TEXT = 64
"""Characters kept of a job's id or a GPU's UUID."""

_PREFIXES = tuple(f"{name}=" for name in VARIABLES)

_KERNEL = 2
"""The parent of the kernel's own threads, which have no environment."""

_BY_NODE = "SLURM_PROCID"
"""This variable numbers ranks; if each node has one task, a launcher, it numbers nodes."""

_LAUNCHERS = re.compile(
    r"srun|slurmstepd|mpirun|mpiexec(\.hydra)?|orterun|orted|prted|prterun|hydra\w*|torchrun"
    r"|(ba|da|z|k|c|tc|fi)?sh"
)


@dataclass(frozen=True, slots=True)
class _Candidate:
    rank: Rank
    variable: str
    """The variable that gave its number."""


class EnvironmentScan:
    """Reads the environment of each new process once, and of all processes now and then.

    A scan runs in the background, since reading an environment may block.  `patience`: how many
    seconds an answer may wait for a scan that is due; by default it does not wait.
    """

    def __init__(
        self,
        proc: Procfs,
        files: Files,
        *,
        patience: float = 0.0,
        every: float = SCAN_SECONDS,
        afresh: float = RESCAN_SECONDS,
        pids: Callable[[], Iterable[int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`every`, `afresh`: seconds between looks for new processes, and between readings of all;
        `pids`: those looked at, which are all of the node without it."""
        self._proc = proc
        self._files = files
        self._patience = patience
        self._every, self._afresh = every, afresh
        self._pids = pids or proc.pids
        self._clock = clock
        self._done = threading.Event()
        self._done.set()
        self._said = ""
        self._seen: set[int] = set()
        self._denied: frozenset[int] = frozenset()
        self._candidates: dict[int, _Candidate] = {}
        """The ranks of the last finished scan; always replaced as a whole."""
        self._scanned_at = float("-inf")
        self._rescanned_at = float("-inf")
        self._chosen: tuple[object, list[Rank]] = None, []
        """The last choice and its input, since finding ancestors is most of the work."""

    @property
    def blocked(self) -> frozenset[int]:
        """The processes whose files, such as the environment, could not be read in time."""
        return self._files.blocked("environ") | self._proc.silent()

    @property
    def denied(self) -> frozenset[int]:
        """The processes that we may not read; they may be ranks."""
        return self._denied

    def ranks(self, recorded: Iterable[int]) -> list[Rank]:
        """One process per rank, as of the last finished scan.

        The processes `recorded` are not read, and their descendants and launchers are left out.
        """
        owners = set(recorded)
        self._begin(owners)
        candidates = self._candidates
        # The end of a rank with a record is in its record.
        running = (candidates.keys() & owners) | self._running(candidates, owners)
        basis = candidates, owners, running
        if basis != self._chosen[0]:
            self._chosen = basis, self._choose(candidates, owners, running)
        return self._chosen[1]

    def _begin(self, recorded: set[int]) -> None:
        """Start a scan if one is due and none is running."""
        now = self._clock()
        under_way = not self._done.is_set() and now - self._scanned_at < GIVE_UP_SECONDS
        if not under_way and now - self._scanned_at >= self._every:
            self._scanned_at = now
            if now - self._rescanned_at >= self._afresh:
                self._rescanned_at = now
                self._seen = set()
            self._done = threading.Event()
            try:  # not Thread.start, which may wait for ever if memory is short
                _thread.start_new_thread(self._try, (recorded, self._done))
            except RuntimeError as error:  # the limit of threads
                self._done.set()
                self._say(error)
        if self._patience:
            self._done.wait(self._patience)

    def _try(self, recorded: set[int], done: threading.Event) -> None:
        try:
            self._scan(recorded)
            self._said = ""
        except (StagewatchError, MemoryError) as error:
            self._say(error)
        finally:
            done.set()

    def _say(self, error: Exception) -> None:
        message = f"ranks without a record cannot be looked for: {error}"
        if is_shortage(error):
            SHORTAGES.met(message)
        elif message != self._said:
            log.warning(message)
        self._said = message

    def _scan(self, recorded: set[int]) -> None:
        pids = set(self._pids())
        running = self._running(self._candidates)
        candidates = {pid: each for pid, each in self._candidates.items() if pid in running}
        seen = (self._seen & pids) - (self._candidates.keys() - candidates.keys())
        try:
            read = self._files.read("environ", sorted(pids - seen - recorded), _PREFIXES)
        except StagewatchError:
            unread = dict.fromkeys(pids - seen - recorded)
            self._denied = (self._denied & pids) | denied(self._proc, unread)
            raise
        again = set()
        for pid, environ in read.items():
            candidates.pop(pid, None)
            environment = variables(environ or b"")
            candidate = self._candidate(pid, environment)
            if candidate is not None:
                candidates[pid] = candidate
            elif _rank_variable(environment):
                again.add(pid)  # a launcher, which may yet run the rank in its place
        self._denied = (self._denied & pids - read.keys()) | denied(self._proc, read)
        self._seen = seen | read.keys() - again
        self._candidates = candidates

    def _running(
        self, candidates: Mapping[int, _Candidate], but_for: Collection[int] = ()
    ) -> set[int]:
        return self._proc.running(
            {
                pid: each.rank.start_ticks or 0
                for pid, each in candidates.items()
                if pid not in but_for
            }
        )

    def _candidate(self, pid: int, environ: Mapping[str, str]) -> _Candidate | None:
        variable = _rank_variable(environ)
        stat = self._proc.stat(pid) if variable else None
        if not variable or stat is None or _LAUNCHERS.fullmatch(stat.command):
            return None
        identity = identify(environ, session=stat.session)
        uid = self._proc.uid(pid)
        if contradicts(identity.job_id, slurm_job(self._proc, pid)):
            return None
        rank = Rank(
            job_id=printable(identity.job_id, MAX_TEXT),
            role="unknown",
            rank=identity.rank,
            pid=pid,
            local_rank=identity.local_rank if identity.local_rank >= 0 else None,
            world_size=identity.world_size if identity.world_size > 0 else None,
            gpu=printable(identity.gpu, MAX_TEXT),
            start_ticks=stat.start_ticks,
            uid=-1 if uid is None else uid,
        )
        return _Candidate(rank, variable)

    def _choose(
        self, candidates: Mapping[int, _Candidate], recorded: set[int], running: Iterable[int]
    ) -> list[Rank]:
        """One process per rank: the eldest, since children inherit the variables.

        Launchers are left out: Slurm numbers them by node (`srun torchrun`, a batch script), and
        their descendants take their numbers from other variables.  A job belongs to the user of its
        eldest process; processes of other users are shown under a job of their own.
        """
        ancestors = {pid: self._ancestors(pid) for pid in running}
        launchers: set[int] = set()
        for pid in recorded:
            launchers |= self._ancestors(pid)
        by_node = {pid for pid, each in candidates.items() if each.variable == _BY_NODE}
        for pid, above in ancestors.items():
            if pid not in by_node:
                launchers |= above & by_node
        chosen: dict[tuple[RankKey, int], Rank] = {}
        for pid, above in ancestors.items():
            if pid in recorded or pid in launchers or above & recorded:
                continue
            rank = candidates[pid].rank
            other = chosen.get((rank.key, rank.uid))
            if other is None or _age(rank) < _age(other):
                chosen[rank.key, rank.uid] = rank
        owners: dict[str, int] = {}
        for rank in sorted(chosen.values(), key=_age):
            owners.setdefault(rank.job_id, rank.uid)
        return [
            rank
            if owners[rank.job_id] == rank.uid
            else replace(rank, job_id=of_another(rank.job_id, rank.uid))
            for rank in chosen.values()
        ]

    def _ancestors(self, pid: int) -> set[int]:
        ancestors: set[int] = set()
        while len(ancestors) < MAX_ANCESTORS:
            stat = self._proc.stat(pid)
            if stat is None or stat.parent <= 1:
                break
            pid = stat.parent
            ancestors.add(pid)
        return ancestors


def denied(proc: Procfs, read: Mapping[int, bytes | None]) -> frozenset[int]:
    """Those of these processes whose environment we may not read, since they belong to other
    users."""
    stats = proc.stats(pid for pid, environ in read.items() if environ is None)
    return frozenset(pid for pid, stat in stats.items() if _KERNEL not in (pid, stat.parent))


def denied_here(proc: Procfs) -> int:
    """The number of processes that this process may not read.

    Raises `SourceError` if the child that reads them does not answer.
    """
    with closing(GuardedFiles(proc.root)) as files:
        return len(denied(proc, files.read("environ", proc.pids(), _PREFIXES)))


def _rank_variable(environ: Mapping[str, str]) -> str | None:
    """The variable that numbers the process as a rank, if there is one."""
    name = next((name for name in rank_variables(environ) if environ.get(name)), None)
    if name is None:
        return None
    text = environ[name]
    return name if text.isascii() and text.isdigit() and len(text) < 8 else None


def _age(rank: Rank) -> tuple[int, int]:
    return rank.start_ticks or 0, rank.pid
