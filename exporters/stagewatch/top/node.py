"""Reads the ranks of this node and judges them as `stagewatch inspect` does."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from stagewatch.host.procfs import Procfs
from stagewatch.incidents.departures import left_lately
from stagewatch.incidents.files import Incident, read, with_evidence
from stagewatch.inspect.command import LookOptions, over
from stagewatch.inspect.evidence import take, text
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.from_node import Observer, shown_by
from stagewatch.judgement.judge import Verdict, judge
from stagewatch.judgement.paging import marked_early
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.directory import rank_directory
from stagewatch.ranks.records import Life
from stagewatch.ranks.stacks import StackTaker
from stagewatch.top.rows import Row, View, row_of
from stagewatch.top.shares import WorkShares

INCIDENTS_SECONDS = 10.0
"""How often the files of incidents are read while a job hangs."""
RATE_SECONDS = 60.0
"""The time over which steps are counted, if it has two steps."""

_Key = tuple[str, str, int, int]


class StepRates:
    """Counts the steps of ranks over repeated looks."""

    def __init__(self) -> None:
        self._steps: dict[_Key, deque[tuple[float, int]]] = {}

    def per_second(self, ranks: Sequence[RankFacts], now: float) -> dict[_Key, float]:
        """Steps per second by rank; without ranks that have not made two steps."""
        before, self._steps = self._steps, {}
        rates = {}
        for rank in ranks:
            if rank.step is None:
                continue
            steps = self._steps[key(rank)] = before.get(key(rank)) or deque(maxlen=1000)
            if steps and steps[-1][1] > rank.step:  # started again
                steps.clear()
            if not steps or steps[-1][1] != rank.step:
                steps.append((now, rank.step))
            while len(steps) > 2 and steps[0][0] < now - RATE_SECONDS:
                steps.popleft()
            if rank.overdue:
                rates[key(rank)] = 0.0
            elif len(steps) > 1:
                rates[key(rank)] = (steps[-1][1] - steps[0][1]) / (now - steps[0][0])
        return rates


def key(rank: RankFacts) -> _Key:
    """The identity of a rank's process on this node."""
    return rank.job_id, rank.role, rank.rank, rank.pid


class NodeSource:
    """The ranks of this node, of one job or of all."""

    def __init__(self, options: LookOptions, job: str) -> None:
        self.title = os.uname().nodename
        self._options = options
        self._job = job
        self._held = ExitStack()
        self._proc = Procfs()
        self._directory = self._held.enter_context(
            rank_directory(options.record_dir, self._proc, fresh_for=0.1)
        )
        self._observer = Observer(self._proc)
        self._rates = StepRates()
        self._shares = WorkShares()
        self._incidents: list[Incident] = []
        self._incidents_of: tuple[list[str], float] = [], 0.0
        self._last: list[RankFacts] = []

    def look(self) -> View:
        """The ranks now.  Raises `SourceError` if records cannot be read."""
        census = self._directory.look()
        mine = [rank for rank in census.ranks if self._job in ("", rank.job_id)]
        self._observer.look(mine)
        ranks = self._observer.facts(mine, full=census.full)
        ended = set() if self._job else over(ranks)
        ranks = [rank for rank in ranks if rank.job_id not in ended] or ranks
        left = left_lately(self._options.incident_dir, ranks, self._proc)
        jobs = [verdict.job_id for verdict in judge([*ranks, *left]) if verdict.stalled]
        ranks = with_evidence(ranks, self._incidents_now(jobs), time.time())
        verdicts = marked_early(judge([*ranks, *left]), shown_by(mine))
        self._last = ranks
        if not ranks:
            return View(((self._options.nothing(self._job), False),))
        accused = {key(rank) for verdict in verdicts for rank in verdict.culprits}
        rates = self._rates.per_second(ranks, time.monotonic())
        shares = self._shares.of(mine, time.clock_gettime(time.CLOCK_BOOTTIME))
        return View(
            [(sentence(one), one.wrong) for one in sorted(verdicts, key=_gravest_first)],
            [
                replace(
                    row_of(rank),
                    at_fault=key(rank) in accused,
                    steps_per_second=rates.get(key(rank)),
                    work_and_waiting=shares.get(key(rank)),
                )
                for rank in ranks
            ],
        )

    def stacks(self, row: Row) -> str:
        """The stack of a rank, then those of the job's other ranks here, from py-spy."""
        ranks = [rank for rank in self._last if rank.job_id == row.job_id]
        live = [
            rank
            for rank in self._directory.look().ranks
            if rank.job_id == row.job_id and rank.life is Life.ALIVE
        ]
        taker = StackTaker()
        try:
            ranks = take(live, ranks, taker)
        finally:
            taker.close()
        asked = next((rank for rank in ranks if row_of(rank).key == row.key), None)
        return text(ranks, judge(ranks), asked).strip() or "No process of this job lives here."

    def close(self) -> None:
        """Close the records, and end the children that read for this source."""
        self._held.close()

    def _incidents_now(self, jobs: list[str]) -> list[Incident]:
        """The stacks of jobs that hang; read now and then, since the agent's files are large."""
        of, when = self._incidents_of
        if jobs != of or time.monotonic() - when >= INCIDENTS_SECONDS:
            self._incidents = list(read(self._options.incident_dir, jobs))
            self._incidents_of = jobs, time.monotonic()
        return self._incidents


def _gravest_first(verdict: Verdict) -> tuple[bool, bool, bool]:
    """First jobs that hang, then those that lost a rank, then those that have ended."""
    return not verdict.stalled, not verdict.charges, not verdict.wrong
