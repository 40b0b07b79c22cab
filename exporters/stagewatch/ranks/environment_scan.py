"""Finds ranks without a stage record, by the variables that their launcher set."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from stagewatch.core.words import printable
from stagewatch.host.procfs import Procfs
from stagewatch.identity import identify, rank_variables
from stagewatch.ranks.model import Rank

SCAN_SECONDS = 5.0
"""How often the scan looks for new processes."""
RESCAN_SECONDS = 60.0
"""How often the scan reads every process again: exec changes the environment of a process."""
MAX_ANCESTORS = 32
MAX_TEXT = 64
"""Characters kept of a job's id or a GPU's UUID."""

_BY_NODE = "SLURM_PROCID"
"""Counts ranks, or nodes where the one task of each node is a launcher."""

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
    """Reads the environment of each new process once, and of all processes now and then."""

    def __init__(self, proc: Procfs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._seen: set[int] = set()
        self._candidates: dict[int, _Candidate] = {}
        self._scanned_at = float("-inf")
        self._rescanned_at = float("-inf")
        self._chosen: tuple[object, list[Rank]] = None, []
        """The last choice and what it was based on: walking up to ancestors is most of the work."""

    def ranks(self, recorded: Iterable[int]) -> list[Rank]:
        """One process per rank; descendants and launchers of `recorded` pids are left out."""
        now = self._clock()
        if now - self._scanned_at >= SCAN_SECONDS:
            self._scanned_at = now
            if now - self._rescanned_at >= RESCAN_SECONDS:
                self._rescanned_at = now
                self._seen.clear()
            self._look(set(self._proc.pids()))
        owners = set(recorded)
        basis = self._scanned_at, owners, self._running(owners)
        if basis != self._chosen[0]:
            self._chosen = basis, self._choose(owners, basis[2])
        return self._chosen[1]

    def _look(self, pids: set[int]) -> None:
        self._seen &= pids
        for pid in self._candidates.keys() - pids:
            del self._candidates[pid]
        for pid in pids - self._seen:
            self._seen.add(pid)
            self._candidates.pop(pid, None)
            candidate = self._candidate(pid)
            if candidate is not None:
                self._candidates[pid] = candidate

    def _candidate(self, pid: int) -> _Candidate | None:
        environ = self._proc.environ(pid)
        variable = _rank_variable(environ) if environ else None
        stat = self._proc.stat(pid) if variable else None
        if not environ or not variable or stat is None or _LAUNCHERS.fullmatch(stat.command):
            return None
        identity = identify(environ, session=stat.session)
        rank = Rank(
            job_id=printable(identity.job_id, MAX_TEXT),
            role="unknown",
            rank=identity.rank,
            pid=pid,
            local_rank=identity.local_rank if identity.local_rank >= 0 else None,
            world_size=identity.world_size if identity.world_size > 0 else None,
            gpu=printable(identity.gpu, MAX_TEXT),
            start_ticks=stat.start_ticks,
        )
        return _Candidate(rank, variable)

    def _choose(self, recorded: set[int], running: Iterable[int]) -> list[Rank]:
        """One process per rank: the eldest, since children inherit the variables.

        A launcher is left out.  Slurm numbers it by node (`srun torchrun`, a batch script), and
        its descendants take their numbers from other variables.
        """
        ancestors = {pid: self._ancestors(pid) for pid in running}
        launchers: set[int] = set()
        for pid in recorded:
            launchers |= self._ancestors(pid)
        by_node = {pid for pid, each in self._candidates.items() if each.variable == _BY_NODE}
        for pid, above in ancestors.items():
            if pid not in by_node:
                launchers |= above & by_node
        chosen: dict[tuple[str, str, str], Rank] = {}
        for pid, above in ancestors.items():
            if pid in recorded or pid in launchers or above & recorded:
                continue
            rank = self._candidates[pid].rank
            other = chosen.get(rank.key)
            if other is None or _age(rank) < _age(other):
                chosen[rank.key] = rank
        return list(chosen.values())

    def _running(self, recorded: set[int]) -> list[int]:
        """The candidates that still run; of a rank with a record, the record tells its end."""
        for pid, candidate in list(self._candidates.items()):
            ticks = candidate.rank.start_ticks or 0
            if pid not in recorded and not self._proc.is_running(pid, ticks):
                del self._candidates[pid]
                self._seen.discard(pid)
        return list(self._candidates)

    def _ancestors(self, pid: int) -> set[int]:
        ancestors: set[int] = set()
        while len(ancestors) < MAX_ANCESTORS:
            stat = self._proc.stat(pid)
            if stat is None or stat.parent <= 1:
                break
            pid = stat.parent
            ancestors.add(pid)
        return ancestors


def _rank_variable(environ: Mapping[str, str]) -> str | None:
    """The variable that numbers the process as a rank, if there is one."""
    name = next((name for name in rank_variables(environ) if environ.get(name)), None)
    if name is None:
        return None
    text = environ[name]
    return name if text.isascii() and text.isdigit() and len(text) < 8 else None


def _age(rank: Rank) -> tuple[int, int]:
    return rank.start_ticks or 0, rank.pid
