"""Follows the records of the ranks that one command has started, and says how they fared."""

from __future__ import annotations

import time
from pathlib import Path

from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.words import duration, printable
from stagewatch.host.procfs import Procfs
from stagewatch.incidents.departures import Departures
from stagewatch.judgement.from_node import observe
from stagewatch.judgement.judge import judge
from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.directory import RankDirectory, records_of_node
from stagewatch.ranks.model import rank_of
from stagewatch.ranks.records import Life, RankRecord

QUIET_SECONDS = 10.0
"""How long no rank may mark progress before the job is judged."""
AGAIN_SECONDS = 3.0
"""Time between two judgements: who sees the hang too, and ends the command, comes after one."""
MAX_ANCESTORS = 32


class Ranks:
    """The ranks among the descendants of one process."""

    def __init__(self, directory: Path, proc: Procfs) -> None:
        self._proc = proc
        self._records = records_of_node(directory, proc)
        self._directory = RankDirectory(self._records, fresh_for=0)
        self._departures = Departures()
        self._began = time.time()
        self._last: dict[str, RankRecord] = {}
        """The last look at each record, by its name."""
        self._gone: list[RankRecord] = []
        """Those whose process ended without closing its record, in the order seen."""
        self._judged_at = time.monotonic()
        self._hung = ""
        """What was wrong at the last look, if something was."""
        self._judged: set[int] = set()
        """Processes of the ranks that were looked at for it."""

    def look(self, command: int) -> None:
        """Look at all records once."""
        try:
            records = self._records.read()
        except (NoData, SourceError):
            return
        for record in records:
            if record.name in self._last or self._is_of(command, record):
                self._last[record.name] = record
        mine = [rank_of(record) for record in records if record.name in self._last]
        self._departures.look(mine)
        names = {record.name for record in self._gone}
        self._gone += [
            record
            for record in self._last.values()
            if record.life is Life.GONE and record.name not in names
        ]
        self._judge()

    def close(self) -> None:
        """Close the records."""
        self._records.close()

    def story(self, status: int, *, by_signal: bool) -> str:
        """How the command ended, in one line."""
        took = duration(time.time() - self._began)
        ranks = {(record.job_id, record.role, record.rank) for record in self._last.values()}
        failures = [
            (record.first_failure.time, record)
            for record in self._last.values()
            if record.first_failure is not None
        ]
        if not ranks:
            return f"no rank kept a record; the command ended after {took}"
        if self._hung and (by_signal or status):
            return printable(f"ended after {took}, hung: {self._hung}")
        if failures and status:
            record = min(failures, key=lambda failure: failure[0])[1]
            assert record.first_failure is not None  # noqa: S101
            what = f"{record.first_failure.error} in {record.first_failure.stage}"
            return printable(f"{_who(record)} failed first, after {took}: {what}")
        if self._gone and (status or by_signal):
            record = self._gone[0]
            return printable(f"{_who(record)} (pid {record.pid}) was ended after {took}")
        if status or by_signal:
            return f"the command failed after {took}, and no rank has recorded why"
        all_ranks = f"all {len(ranks)} ranks" if len(ranks) > 1 else "the rank"
        return f"{all_ranks} ended well after {took}"

    def _judge(self) -> None:
        living = [record for record in self._last.values() if record.life is Life.ALIVE]
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        if not living:
            return  # what was wrong last stays: the command is being ended
        ages = [now - record.progress for record in living if record.progress]
        if min(ages, default=0.0) < QUIET_SECONDS:
            self._hung = ""
            return
        if time.monotonic() - self._judged_at < AGAIN_SECONDS:
            return
        pids = {record.pid for record in living}
        if self._hung and self._judged - pids:
            return  # the same: who has ended since is missing because it hung
        self._judged_at, self._judged = time.monotonic(), pids
        facts = observe(self._directory, self._proc, looks=4, pause=0.1)
        facts = [fact for fact in facts if fact.pid in pids]
        verdicts = judge([*facts, *self._departures.facts(facts)])
        self._hung = next((sentence(verdict) for verdict in verdicts if verdict.wrong), "")

    def _is_of(self, command: int, record: RankRecord) -> bool:
        """Whether the process is a descendant of the command, or, gone, one of a job of its."""
        if record.life is not Life.ALIVE:
            jobs = {known.job_id for known in self._last.values()}
            return record.created >= self._began and record.job_id in jobs
        pid = record.pid
        for _ in range(MAX_ANCESTORS):
            if pid == command:
                return True
            stat = self._proc.stat(pid)
            if stat is None:
                break
            pid = stat.parent
        return False


def _who(record: RankRecord) -> str:
    role = "" if record.role == "train" else f" of {record.role}"
    return f"rank {record.rank}{role}"
