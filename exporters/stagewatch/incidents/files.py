"""Incidents: what a node's agent saw of a job when it first seemed to hang, kept in files.

Every incident is a JSON file that root and, by an ACL, the user of the job may read.  Files that
are read back, after a restart or by `stagewatch inspect`, are checked in every detail.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stagewatch.core.acl import let_read
from stagewatch.core.state_file import BROKEN, StateFile, decode, parse
from stagewatch.core.words import printable
from stagewatch.incidents.departures import NAME
from stagewatch.judgement.facts import KernelWait, RankFacts
from stagewatch.ranks.nccl.layout import STATES, Communicator
from stagewatch.ranks.stacks import MAX_FRAME, Stack
from stagewatch.ranks.wait_class import WaitClass

log = logging.getLogger(__name__)

DIRECTORY = Path("/var/lib/stagewatch/incidents")
VERSION = 2
MAX_INCIDENTS = 64
MAX_TOTAL_BYTES = 64 << 20
MAX_BYTES = 8 << 20
"""The largest incident."""
MAX_TEXT = 300
MAX_AGE_SECONDS = 30 * 86400.0

_NAME = re.compile(r"\d{8}T\d{6}Z-[A-Za-z0-9._-]{1,100}\.json(\.corrupt)?")
_GROUP = re.compile(r"[0-9a-f]{8}|")


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """The evidence on one rank of a job that seems to hang."""

    role: str
    rank: int
    pid: int
    stack: Stack
    facts: dict[str, Any]
    """The facts as `stagewatch inspect --json` has them."""
    waits: tuple[KernelWait, ...] = ()
    """Its waits, as the kernel shows them."""
    ends: tuple[KernelWait, ...] = ()
    """Who holds the ends on this node of connections to other nodes, whose ranks may wait for
    them."""
    nccl: tuple[Communicator, ...] = ()
    """Its communicators with an operation that has not moved."""

    @property
    def waits_here(self) -> tuple[KernelWait, ...]:
        """The waits as far as this node knows them: only another node can say which rank a client
        there is."""
        return tuple(wait for wait in self.waits if not (wait.address and wait.through))


@dataclass(frozen=True, slots=True)
class Incident:
    """A job that seems to hang, as one node sees it."""

    job_id: str
    time: float
    """When the stacks were taken, Unix time."""
    sentences: tuple[str, ...]
    """The verdicts on its roles."""
    ranks: tuple[RankEvidence, ...]
    libraries: tuple[str, ...] = ()
    """Facts from PyTorch's flight recorder and NCCL's RAS, one fact a line."""

    def evidence_of(self, rank: RankFacts) -> RankEvidence:
        """The evidence on a rank; empty if its process is another one now."""
        wanted = rank.role, rank.rank, rank.pid
        mine = (one for one in self.ranks if (one.role, one.rank, one.pid) == wanted)
        return next(mine, RankEvidence(*wanted, Stack(), {}))

    def current(self, ranks: Sequence[RankFacts], now: float) -> bool:
        """Whether the overdue ranks of the job have stood still since the incident."""
        overdue = [rank for rank in ranks if rank.overdue]
        return bool(overdue) and len(self.unmoved(overdue, now)) == len(overdue)

    def unmoved(self, ranks: Iterable[RankFacts], now: float) -> list[RankFacts]:
        """The ranks that have not moved since the incident, if one is overdue: the evidence on them
        still holds, whatever others did.  Marks without a step are no move."""
        since = now - self.time
        ages = (
            (rank, rank.step_age_seconds if rank.stepless else rank.progress_age_seconds)
            for rank in ranks
        )
        still = [rank for rank, age in ages if since >= 0 and (age is None or age >= since)]
        return still if any(rank.overdue for rank in still) else []


class IncidentDirectory:
    """The incidents of a node: a bounded number, size and age."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def departures(self) -> Path:
        """The file beside the incidents that lists the ranks that have left lately."""
        return self._path / NAME

    def load(self) -> dict[str, Incident]:
        """The latest incident of each job; damaged files are set aside with a log line."""
        return {
            incident.job_id: incident
            for file in self._files()
            if (incident := StateFile(file, lost="it is not shown").load(_incident)) is not None
        }

    def keep(self, incident: Incident, uid: int | None) -> None:
        """Write an incident, readable by this user, and remove what is too old or too much.

        This makes the directory, but not its parent, which the installation of the agent makes.
        """
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(incident.time))
        job = re.sub(r"[^A-Za-z0-9._-]", "_", incident.job_id)[:80]
        digest = hashlib.sha256(incident.job_id.encode()).hexdigest()[:8]
        with contextlib.suppress(OSError):  # told of when the file cannot be written
            self._path.mkdir(exist_ok=True)
        file = StateFile(self._path / f"{moment}-{job}-{digest}.json", lost="it is not shown")
        file.save({"version": VERSION, **asdict(incident)})
        if file.ok and uid is not None:
            try:
                let_read(file.path, uid)
            except OSError as error:
                log.warning("only root may read %s: no ACL (%s)", file.path, error.strerror)
        self._prune(incident.time)

    def _files(self) -> list[Path]:
        """Oldest first, by name."""
        with contextlib.suppress(OSError):
            return sorted(file for file in self._path.iterdir() if _NAME.fullmatch(file.name))
        return []

    def _prune(self, now: float) -> None:
        total = 0
        for place, file in enumerate(reversed(self._files())):
            with contextlib.suppress(OSError):
                status = file.stat()
                total += status.st_size
                old = now - status.st_mtime > MAX_AGE_SECONDS
                if place >= MAX_INCIDENTS or total > MAX_TOTAL_BYTES or old:
                    file.unlink()


def read(directory: Path, jobs: Iterable[str]) -> Iterator[Incident]:
    """The latest incident of each of these jobs that this user may read; changes no file."""
    wanted = set(jobs)
    for file in reversed(IncidentDirectory(directory)._files()):
        with contextlib.suppress(OSError, *BROKEN):
            if wanted and file.is_file() and file.stat().st_size <= MAX_BYTES:
                incident = _incident(parse(file.read_bytes()))
                if incident.job_id in wanted:
                    wanted.discard(incident.job_id)
                    yield incident


def with_evidence(
    ranks: Sequence[RankFacts], incidents: Iterable[Incident], now: float
) -> list[RankFacts]:
    """The ranks with stacks and waits from the incidents in which they have not moved since."""
    witnesses: dict[int, RankEvidence] = {}
    for incident in incidents:
        mine = [rank for rank in ranks if rank.job_id == incident.job_id]
        witnesses |= {id(rank): incident.evidence_of(rank) for rank in incident.unmoved(mine, now)}

    def seen(rank: RankFacts) -> RankFacts:
        one = witnesses.get(id(rank))
        if one is None or rank.wait_class is WaitClass.GONE:
            return rank
        return replace(rank, stack=one.stack, kernel_waits=one.waits_here, nccl=one.nccl)

    return [seen(rank) for rank in ranks]


def still_valid(
    ranks: Sequence[RankFacts], incidents: Iterable[Incident], now: float
) -> list[Incident]:
    """The incidents whose overdue ranks have not moved since."""
    return [
        incident
        for incident in incidents
        if incident.current([rank for rank in ranks if rank.job_id == incident.job_id], now)
    ]


def _incident(content: Any) -> Incident:
    """An incident from its JSON.  Raises one of `BROKEN`."""
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']!r:.20} is not {VERSION}")
    incident: Incident = decode(Incident, content)
    for one in incident.ranks:
        texts = one.stack.frame, one.stack.call, one.stack.whom
        if not _GROUP.fullmatch(one.stack.group) or max(map(len, texts)) > MAX_FRAME:
            raise ValueError("a stack is none")
    ranks = [replace(one, nccl=tuple(map(_printable, one.nccl))) for one in incident.ranks]
    return replace(incident, ranks=tuple(ranks))


def communicator(content: Any) -> Communicator:
    """A communicator from its `asdict`, with printable names.  Raises one of `BROKEN`."""
    return _printable(decode(Communicator, content))


def _printable(one: Communicator) -> Communicator:
    if one.state not in STATES:
        raise ValueError(f"{one.state!r:.20} is no state of an operation")
    return replace(
        one,
        id=printable(one.id, MAX_TEXT),
        name=printable(one.name, MAX_TEXT),
        op=printable(one.op, MAX_TEXT),
        transfers=tuple(
            replace(each, network=printable(each.network, MAX_TEXT)) for each in one.transfers
        ),
        witness=printable(one.witness, MAX_TEXT),
    )
