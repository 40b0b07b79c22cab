"""Takes the stacks of a job's ranks on this node once they seem to hang, and keeps an incident.

It judges as `stagewatch inspect` does.  If the culprit is on another node, all ranks here wait for
it, and their stacks show what the culprit does not do.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration
from stagewatch.core.config import option
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, gauge
from stagewatch.core.findings import Findings
from stagewatch.core.words import printable
from stagewatch.host.guarded import Files
from stagewatch.host.procfs import Procfs
from stagewatch.incidents.departures import Departures
from stagewatch.incidents.files import (
    DIRECTORY,
    Incident,
    IncidentDirectory,
    RankEvidence,
    with_evidence,
)
from stagewatch.incidents.kernel_waits import NOTHING, far_ends, kernel_waits
from stagewatch.incidents.libraries import Answers, FirstAnswers, Libraries, RayWaits
from stagewatch.judgement.facts import KernelWait, RankFacts, as_json
from stagewatch.judgement.from_node import Observer, shown_by
from stagewatch.judgement.headline import findings_of
from stagewatch.judgement.judge import judge
from stagewatch.judgement.limits import DEFAULT, MIN_SECONDS
from stagewatch.judgement.paging import marked_early
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.model import RANK_LABELS, Rank, RankKey
from stagewatch.ranks.nccl.files import ByProcess, NcclFiles, by_others, unmoved
from stagewatch.ranks.records import Life
from stagewatch.ranks.servers import Gone, Repeated, Servers
from stagewatch.ranks.stacks import MISSING, NO_PROCESS, Stack, StackTaker, Take, stack
from stagewatch.ranks.stacks_child import ANSWER_SECONDS
from stagewatch.ranks.waits.blocking_calls import with_call
from stagewatch.ranks.waits.look import Waits

log = logging.getLogger(__name__)

APART_SECONDS = 3.0
"""Time between the two looks at a rank's stack."""
PAUSES_SECONDS = (10.0, 20.0, 40.0, 80.0)
"""Seconds between two looks at the stacks of a job that stands still: the place where a rank was
most of the time says more than the place where it was once."""
ANEW_SECONDS = 600.0
"""Least time before the stacks of a job that hangs again are taken anew."""
MAX_JOBS = 8
"""The most jobs whose stacks are shown: the first ones, so that a further hang takes no verdict
back."""
MAX_RANKS = 64
"""The most ranks of a job whose stacks are taken."""
MAX_LOOKS = 1024
"""Looks at ranks within `ANEW_SECONDS`, the latter half of them at jobs that were not looked at
before: some 0.03 s of CPU time each."""
MAX_FRAMES = 10_000
"""The most frames kept of a job; beyond that it is not looked at again."""
QUIET_SECONDS = MIN_SECONDS / 2
"""The ranks of a job are observed once one of them has made no progress for so long."""
TIDY_SECONDS = 60.0
"""Time between two searches for NCCL files that killed ranks have left."""

GROUP = gauge(
    "rl_rank_stack_group",
    "Place in the code at which a rank was when its job began to hang: the line of the user's own "
    "code, and the functions called from there. Equal groups are equal places, on all nodes. 1 if "
    "all looks saw the rank in these functions, and half of them at this line (two looks 3 s "
    "apart, more while it hangs). 0 if it moved: then the group is the place where at least half "
    "of the looks saw it, else the part of the stack that stayed.",
    (*RANK_LABELS, "group"),
)
FRAME = gauge(
    "rl_rank_stack_frame_info",
    "1 for the innermost frame of the user's own code that a rank was in when its job began to "
    "hang: file, line and function; with the blocking call of a library that it was in, if it is "
    "known (call), and for whom this waits (whom).",
    (*RANK_LABELS, "frame", "call", "whom"),
)
_WHOM = ("for_role", "for_rank", "process", "address", "through", "machine")
WAITS = gauge(
    "rl_rank_waits_for",
    "1 for everything that a rank waits for by the kernel, once its job seems to hang: a rank, a "
    "process that is not a rank, or an address; without these labels it waits for nobody. `how`: "
    "the operation. A process is the same for nodes on one machine.",
    (*RANK_LABELS, "how", *_WHOM),
)
NCCL = gauge(
    "rl_rank_nccl_operation",
    "Number of the collective that a rank has open in a communicator, or had last, once its job "
    "seems to hang. `witness`: the `plugin` of stagewatch-nccl, if two looks 3 s apart saw the "
    "same; the `flight_recorder` of PyTorch; or NCCL's `ras`, which counts every operation apart. "
    "`state`: `idle`, none is open; `called`, the program is inside of NCCL's call; `launched`, "
    "the GPU has not begun it; `begun`, it runs.",
    (
        *(*RANK_LABELS, "communicator", "name", "member", "members", "op", "bytes", "state"),
        "witness",
    ),
)
TRANSFER = gauge(
    "rl_rank_nccl_wait_info",
    "1 for everything that the NCCL proxy of a rank waits for, once its job seems to hang: to "
    "`receive` from a peer, for the peer's `credit` to send, or for the `network` to take the "
    "bytes; a peer is a member's number.",
    (*RANK_LABELS, "communicator", "waits", "peer", "network"),
)
CONNECTION = gauge(
    "rl_rank_connection_info",
    "1 for every connection to another node, once the job seems to hang: of a rank outside "
    "of collectives, or of a process that ranks of this node wait for. If `rl_rank_waits_for` of "
    "the other node has the same address, it waits for this rank, or for what that process waits "
    "for.",
    (*RANK_LABELS, *_WHOM),
)


@dataclass(frozen=True, slots=True)
class IncidentsOptions:
    """Options of the `incidents` collector."""

    dir: Path = option(
        DIRECTORY,
        "where incidents are kept: stacks and facts of jobs that hang",
        env="STAGEWATCH_INCIDENT_DIR",
    )


@dataclass(slots=True)
class _Watched:
    """A job that seems to hang, and the looks at its ranks so far."""

    job_id: str
    ranks: Sequence[Rank]
    asked: FirstAnswers
    due: float
    """When the next look is, on the monotonic clock."""
    looks: dict[int, list[Take]] = field(default_factory=dict)
    """The looks by process, the latest last; earlier ones have only the training thread."""
    nccl: ByProcess = field(default_factory=dict)
    """The communicators by process at the first of two looks."""
    incident: Incident | None = None
    """The incident, once there were two looks."""
    pauses: Iterator[float] = field(default_factory=lambda: iter(PAUSES_SECONDS))
    """The remaining pauses."""

    def add(self, takes: Mapping[int, Take]) -> None:
        """Add a look; a rank whose stack cannot be read any more keeps its earlier looks."""
        for pid, take in takes.items():
            looks = self.looks.setdefault(pid, [])
            if take.threads or self.incident is None:
                looks[-1:] = [replace(look, threads=look.threads[:1]) for look in looks[-1:]]
                looks.append(take)

    def stack(self, rank: Rank) -> Stack:
        """The stack that a rank had in at least half of the looks."""
        looks = self.looks.get(rank.pid, [Take(problem=NO_PROCESS)])
        return with_call(stack(*looks), looks)

    def pause(self) -> float | None:
        """Seconds until the next look at the job; `None` if there is none."""
        frames = sum(
            len(look.threads[0][1])
            for looks in self.looks.values()
            for look in looks
            if look.threads
        )
        return next(self.pauses, None) if frames < MAX_FRAMES else None


@dataclass(slots=True)
class _Question:
    """A question to the kernel about a job's ranks; the answer takes some seconds."""

    job_id: str
    ranks: Sequence[Rank]
    ray: RayWaits | None = None
    """Ray's answer: whom the processes of its tasks wait for."""
    gone: Mapping[RankKey, Gone] = field(default_factory=dict)
    """The ended servers that its ranks called."""
    servers: Mapping[RankKey, Repeated] = field(default_factory=dict)
    """The servers that its ranks ask again and again."""


class IncidentsCollector(Collector):
    """Judges this node's ranks, and looks closer at those of one suspected job after another."""

    shown_seconds = ANSWER_SECONDS + 10.0  # stacks take their time on a node that is busy

    def __init__(
        self,
        ranks: RankDirectory,
        proc: Procfs,
        directory: IncidentDirectory,
        taker: StackTaker,
        *,
        findings: Findings | None = None,
        files: Files | None = None,
        waits: Waits | None = None,
        servers: Servers | None = None,
        nccl: NcclFiles | None = None,
        device: Callable[[str], str] = lambda uuid: "",
        still: Callable[[RankKey], float | None] = lambda key: None,
    ) -> None:
        """`device`: what a GPU does, by its UUID; `still`: how many seconds a rank has stood
        still."""
        self._ranks = ranks
        self._proc = proc
        self._waits = waits or Waits()
        self._servers = servers
        self._asked: _Question | None = None
        self._observer = Observer(proc, device=device, still=still)
        self._still = still
        boot_id = proc.boot_id()
        self._machine = boot_id[:8]
        self._departures = Departures(directory.departures, boot_id)
        self._directory = directory
        self._taker = taker
        self._findings = findings or Findings()
        self._libraries = Libraries(files)
        self._nccl = nccl
        self._tidied = time.monotonic()
        self._begun: _Watched | None = None
        """The jobs between the two looks of a pair."""
        self._watched: dict[str, _Watched] = {}
        """The jobs with an incident, which will be looked at again if they still hang."""
        self._latest = directory.load()
        self._taken = {
            job_id: (incident.time, 2 * len(incident.ranks))
            for job_id, incident in self._latest.items()
        }
        """By job, the time of the first look and the number of looks at ranks since."""
        if not taker.installed:
            log.warning("incidents will have no stacks: %s", MISSING)

    def collect(self) -> Samples:
        all_ranks = self._ranks.look().ranks
        self._departures.look(all_ranks)
        self._tidy()
        if self._servers is not None:
            self._servers.look()
        ranks = self._quiet(all_ranks)
        self._observer.look(ranks)
        facts = self._observer.facts(ranks)
        left = self._departures.facts(facts)
        verdicts = judge([*facts, *left])
        stalled = {verdict.job_id for verdict in verdicts if verdict.stalled}
        suspected = stalled | {verdict.job_id for verdict in verdicts if verdict.in_doubt}
        if self._begun is not None and time.monotonic() >= self._begun.due:
            begun, self._begun = self._begun, None
            if begun.job_id in suspected:
                self._keep(
                    begun,
                    [fact for fact in facts if fact.job_id == begun.job_id],
                    [fact for fact in left if fact.job_id == begun.job_id],
                )
            self._taker.rest()
            self._libraries.rest()
        self._note_waits(suspected)
        now = time.time()
        by_job: defaultdict[str, list[RankFacts]] = defaultdict(list)
        for fact in facts:
            by_job[fact.job_id].append(fact)
        # The page names the line of code, once it is known.
        known = suspected & self._latest.keys()
        for job_id in known:
            by_job[job_id] = with_evidence(by_job[job_id], [self._latest[job_id]], now)
        facts = list(chain.from_iterable(by_job.values()))
        verdicts = [verdict for verdict in verdicts if verdict.job_id not in known]
        verdicts += judge([fact for fact in (*facts, *left) if fact.job_id in known])
        verdicts = marked_early(verdicts, shown_by(ranks))
        verdicts.sort(key=lambda verdict: verdict.job_id)
        self._findings.replace(findings_of(verdicts, facts))
        out = Samples()
        hanging = []
        for job_id in sorted(suspected, key=lambda job: (job not in stalled, self._looked_at(job))):
            mine = by_job[job_id]
            incident = self._latest.get(job_id)
            if incident is not None and (still := incident.unmoved(mine, now)):
                hanging.append(job_id)
                if len(hanging) <= MAX_JOBS:
                    _show(out, incident, still, self._machine)
            if incident is None or not incident.current(mine, now):
                self._begin([rank for rank in ranks if rank.job_id == job_id], mine, now)
        self._watched = {job: self._watched[job] for job in hanging if job in self._watched}
        self._look_again(facts, now)
        if not out.families:
            raise NoData("no job on this node seems to hang")
        return out

    def _tidy(self) -> None:
        """Remove NCCL files of killed ranks, now and then."""
        if self._nccl is not None and time.monotonic() - self._tidied > TIDY_SECONDS:
            self._tidied = time.monotonic()
            self._nccl.tidy()

    def _communicators(self, ranks: Iterable[Rank]) -> ByProcess:
        """The communicators of these ranks, as far as they run the profiler plugin."""
        return self._nccl.read({rank.pid for rank in ranks if rank.pid}) if self._nccl else {}

    def close(self) -> None:
        self._taker.close()
        self._waits.close()
        self._libraries.close()

    def _quiet(self, ranks: Sequence[Rank]) -> list[Rank]:
        """The ranks of jobs in which a rank makes no progress, or in which ranks without a record
        have long stood still."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        quiet = {
            rank.job_id
            for rank in ranks
            if rank.life is Life.ALIVE
            and rank.record is not None
            and (rank.record.lanes or rank.record.unmarked)
            and now - rank.record.progress > QUIET_SECONDS
        }
        recorded = {rank.job_id for rank in ranks if rank.record is not None}
        still: defaultdict[str, list[float]] = defaultdict(list)
        for rank in ranks:
            if rank.life is Life.ALIVE and rank.job_id not in recorded:
                still[rank.job_id].append(self._still(rank.key) or 0.0)
        quiet |= {job for job, seconds in still.items() if min(seconds) > DEFAULT.bare_seconds}
        return [rank for rank in ranks if rank.job_id in quiet]

    def _looked_at(self, job_id: str) -> tuple[float, str]:
        """A sort key: when the job's incident began; jobs without one come last."""
        incident = self._latest.get(job_id)
        return incident.time if incident else math.inf, job_id

    def _begin(self, ranks: Sequence[Rank], facts: Sequence[RankFacts], now: float) -> None:
        """Look at a job for the first time, unless that was done a moment ago."""
        job_id = facts[0].job_id
        live = [rank for rank in ranks if rank.life is Life.ALIVE][:MAX_RANKS]
        room = self._room(now, MAX_LOOKS)
        if self._begun is not None or job_id in self._taken or room < 2 * len(live):
            return
        self._taken[job_id] = (now, 2 * len(live))
        self._ask_the_kernel(job_id, live, facts)
        takes = self._taker.take(live)
        asked = self._libraries.ask(live)
        if self._asked is not None and self._asked.job_id == job_id:
            self._asked.ray = asked.ray
        self._begun = _Watched(job_id, live, asked, time.monotonic() + APART_SECONDS)
        self._begun.add(takes)
        self._begun.nccl = self._communicators(live)

    def _look_again(self, facts: Sequence[RankFacts], now: float) -> None:
        """Look again at the job whose turn it is."""
        watched = min(self._watched.values(), key=lambda one: one.due, default=None)
        if self._begun is not None or watched is None or watched.due > time.monotonic():
            return
        if self._room(now, MAX_LOOKS // 2) >= 2 * len(watched.ranks):
            begun, looks = self._taken.get(watched.job_id, (now, 0))
            self._taken[watched.job_id] = (begun, looks + 2 * len(watched.ranks))
            mine = [fact for fact in facts if fact.job_id == watched.job_id]
            self._ask_the_kernel(watched.job_id, watched.ranks, mine, watched.asked.ray)
            watched.add(self._taker.take(watched.ranks))
            watched.nccl = self._communicators(watched.ranks)
            watched.due = time.monotonic() + APART_SECONDS
            self._begun = self._watched.pop(watched.job_id)

    def _room(self, now: float, limit: int) -> int:
        """The remaining number of looks at ranks."""
        self._taken = {
            job: taken for job, taken in self._taken.items() if 0 <= now - taken[0] < ANEW_SECONDS
        }
        return limit - sum(looks for _, looks in self._taken.values())

    def _keep(
        self, watched: _Watched, facts: Sequence[RankFacts], left: Sequence[RankFacts]
    ) -> None:
        watched.add(self._taker.take(watched.ranks))
        stacks = {rank.key: watched.stack(rank) for rank in watched.ranks}
        nccl = unmoved(watched.nccl, self._communicators(watched.ranks))
        before = self._latest[watched.job_id] if watched.incident else None
        told = Answers() if before else self._libraries.read(watched.asked)
        calls = {one.pid: by_others(one.nccl) for one in before.ranks} if before else told.calls
        seen = [
            replace(
                fact,
                stack=stacks[key],
                kernel_waits=before.evidence_of(fact).waits_here if before else (),
                nccl=(*nccl.get(fact.pid, ()), *calls.get(fact.pid, ())),
            )
            for fact in facts
            if (key := (fact.job_id, fact.role, str(fact.rank))) in stacks
        ]
        told_of = judge([*seen, *left])
        sentences = tuple(printable(sentence(verdict), 1000) for verdict in told_of)
        if before is None:
            witnesses = tuple(
                RankEvidence(
                    fact.role, fact.rank, fact.pid, fact.stack, as_json(fact), nccl=fact.nccl
                )
                for fact in seen
            )
            libraries = tuple(told.lines)
            incident = Incident(watched.job_id, time.time(), sentences, witnesses, libraries)
        else:
            ranks = tuple(
                replace(
                    one,
                    stack=stacks[before.job_id, one.role, str(one.rank)],
                    nccl=(*nccl.get(one.pid, ()), *calls[one.pid]),
                )
                for one in before.ranks
            )
            incident = replace(before, sentences=sentences, ranks=ranks)
        self._write(incident, watched.ranks)
        self._latest[watched.job_id] = watched.incident = incident
        for old in sorted(self._latest, key=lambda job: self._latest[job].time)[: -8 * MAX_JOBS]:
            del self._latest[old]
        if (pause := watched.pause()) is not None and len(self._watched) < MAX_JOBS:
            watched.due = time.monotonic() + pause
            self._watched[watched.job_id] = watched

    def _ask_the_kernel(
        self,
        job_id: str,
        ranks: Sequence[Rank],
        facts: Sequence[RankFacts],
        ray: RayWaits | None = None,
    ) -> None:
        """Begin to ask the kernel what ranks wait for outside of collectives."""
        if self._asked is None:
            self._waits.ask(
                [rank.pid for rank in ranks if rank.pid],
                starts={rank.pid: rank.start_ticks or 0 for rank in ranks},
                threads={rank.pid: rank.thread for rank in ranks},
                connected=[fact.pid for fact in facts if fact.pid and not fact.inside],
            )
            self._asked = _Question(
                job_id, ranks, ray, self._servers_gone(facts), self._servers_asked(facts)
            )

    def _servers_gone(self, facts: Iterable[RankFacts]) -> dict[RankKey, Gone]:
        """The ended servers that overdue ranks called, by rank."""
        return {
            (fact.job_id, fact.role, str(fact.rank)): self._servers.gone(
                fact.pid, fact.progress_age_seconds or 0.0, fact.late_seconds
            )
            for fact in facts
            if self._servers is not None and fact.pid and fact.late_seconds is not None
        }

    def _servers_asked(self, facts: Iterable[RankFacts]) -> dict[RankKey, Repeated]:
        """The servers that ranks ask again and again, by rank."""
        if self._servers is None:
            return {}
        ranks = {fact.pid: fact for fact in facts if fact.pid}
        ages = {
            pid: fact.step_age_seconds or fact.progress_age_seconds or 0.0
            for pid, fact in ranks.items()
        }
        asked = self._servers.asked(ages, [pid for pid, fact in ranks.items() if fact.inside])
        return {(fact.job_id, fact.role, str(fact.rank)): asked[pid] for pid, fact in ranks.items()}

    def _note_waits(self, suspected: Collection[str]) -> None:
        """Add the kernel's answer to the incident.  If it shows nothing for a rank that has not
        moved, the earlier answer still holds."""
        asked = self._asked
        if asked is None or self._begun is not None or (waiting := self._waits.answer()) is None:
            return
        self._asked = None
        self._waits.rest()
        incident = self._latest.get(asked.job_id)
        if incident is not None and asked.job_id in suspected:
            waits = kernel_waits(
                waiting, asked.ranks, self._proc, asked.ray, asked.gone, asked.servers
            )
            ends = far_ends(waiting, asked.ranks, self._proc)
            ranks = tuple(
                replace(
                    one,
                    waits=_latest(one.waits, waits.get(key, ())),
                    ends=ends.get(key, one.ends),
                )
                for one in incident.ranks
                if (key := (incident.job_id, one.role, str(one.rank)))
            )
            self._latest[asked.job_id] = incident = replace(incident, ranks=ranks)
            self._write(incident, asked.ranks)

    def _write(self, incident: Incident, ranks: Iterable[Rank]) -> None:
        users = {rank.record.uid for rank in ranks if rank.record is not None}
        self._directory.keep(incident, users.pop() if len(users) == 1 else None)


def _latest(before: tuple[KernelWait, ...], now: tuple[KernelWait, ...]) -> tuple[KernelWait, ...]:
    """The waits that the kernel shows now; if it shows none, the earlier ones."""
    return now if now and (NOTHING not in now or not before) else before


def _show(out: Samples, incident: Incident, ranks: Iterable[RankFacts], machine: str) -> None:
    for rank in ranks:
        seen = incident.evidence_of(rank)
        found = seen.stack
        key = rank.job_id, rank.role, rank.rank
        if found.group:
            out.add(GROUP, int(found.still), *key, found.group)
        if found.frame:
            out.add(FRAME, 1, *key, found.frame, found.call, found.whom)
        for wait in seen.waits:
            out.add(WAITS, 1, *key, wait.how, *_whom(wait, machine))
        for one in seen.nccl:
            told = one.name, one.member, one.members, one.op, one.size, one.state, one.witness
            out.add(NCCL, one.sequence, *key, one.id, *told)
            for transfer in one.transfers:
                mine = transfer.waits, transfer.peer, transfer.network
                out.add(TRANSFER, 1, *key, one.id, *mine)
        for wait in seen.ends:
            out.add(CONNECTION, 1, *key, *_whom(wait, machine))


def _whom(wait: KernelWait, machine: str) -> tuple[str, ...]:
    number = "" if wait.rank is None else str(wait.rank)
    where = machine if wait.process or wait.through else ""
    return wait.role, number, wait.process, wait.address, wait.through, where


SPEC = Declaration(
    name="incidents",
    page="verdicts",
    help="stacks of the ranks of a job that seems to hang, which are kept as an incident",
    interval=1.0,
    options=IncidentsOptions,
)
