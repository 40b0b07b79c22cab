"""Follows the ranks that one command has started, and says in the end how they fared."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from stagewatch.core.errors import SourceError, StagewatchError
from stagewatch.core.words import duration, ended, printable
from stagewatch.died.causes import DEATH_SECONDS, Cause, Death, Kind, first
from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import Procfs
from stagewatch.incidents.departures import Departures
from stagewatch.inspect.evidence import gather
from stagewatch.inspect.processes import lines
from stagewatch.judgement.from_node import observe, shown_by
from stagewatch.judgement.judge import judge
from stagewatch.judgement.limits import DEFAULT
from stagewatch.judgement.paging import marked_early
from stagewatch.judgement.sentence import sentence
from stagewatch.kernel_log.reader import KERNEL_LOG, Kmsg
from stagewatch.ranks.directory import RankDirectory, records_of_node
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.model import Rank, rank_of
from stagewatch.ranks.records import Life, RankRecord
from stagewatch.ranks.stacks import StackTaker
from stagewatch.run import causes
from stagewatch.run.bare import BareRanks
from stagewatch.run.endings import Ending, Endings
from stagewatch.run.stillness import STILL_SECONDS, Still, Stillness

QUIET_SECONDS = 10.0
"""How long no rank may mark progress before the job is judged."""
AGAIN_SECONDS = 3.0
"""Time between two judgements; three times that once something is wrong."""
AFRESH_SECONDS = 60.0
"""How long no rank may mark progress before a second hang replaces the first."""
RECOVERED_SECONDS = 30.0
"""How long marks of progress must go on after a hang before it is over, unless a step is completed:
ending a hung job closes stages, and that makes marks too."""
BEFORE_SECONDS = 5.0
"""Which look counts for the peers of the first rank that Ctrl-C ends: the one so many seconds
before.  Later they end too and close stages, which makes marks."""
MAX_ENDINGS = 8
"""The most ended processes that are listed."""
END_SECONDS = 2.0
"""How long the end waits for a judgement under way."""
LOOKS = 6
PAUSE_SECONDS = 0.5
MAX_ANCESTORS = 32

Key = tuple[str, str, int]
_COMMAND = ("", "command", "0")
_ANNOUNCE = "stagewatch.expect(SECONDS) in the script announces such a pause"
_SENDER = {
    True: "; the kernel has killed for want of memory meanwhile",
    False: "; a user or a program sent it: the kernel has killed nothing for want of memory",
    None: "",
}


@dataclass(frozen=True, slots=True)
class Hang:
    """What was wrong while no rank made progress."""

    progress: float
    """`CLOCK_BOOTTIME` of the last progress; 0 if there was none."""
    since: float
    """Unix time of the last progress."""
    seen_at: float
    told: str
    placed: bool
    """Whether the text says where the ranks at fault are in the code."""
    early: bool
    """Whether it is too early to act, since the job may go on by itself."""
    step: int | None
    """The furthest step at that time."""
    living: frozenset[str]
    """The names of the records of live ranks."""


class Ranks:
    """The ranks among the descendants of one process."""

    def __init__(
        self,
        directory: Path,
        proc: Procfs,
        *,
        tell: Callable[[str], None] = lambda _: None,
        taker: StackTaker | None = None,
        kernel_log: Path = KERNEL_LOG,
        bare_seconds: float = DEFAULT.bare_seconds,
    ) -> None:
        """`tell` gets a line as soon as ranks wait, another once that is a hang, and a third when
        it is over.  `bare_seconds`: see `Limits`."""
        self._proc = proc
        self._records = records_of_node(directory, proc)
        self._directory = RankDirectory(self._records, fresh_for=0)
        self._families = ProcessFamilies(self._root, proc, fresh_for=0.5)
        self._endings = Endings(proc)
        self._departures = Departures()
        self._taker = taker or StackTaker()
        self._bare = BareRanks(
            *(self._root, self._pids, proc),
            limit=bare_seconds,
            taker=self._taker,
        )
        self._tell = tell
        self._began = time.time()
        self._oom_kills = causes.oom_kills()
        self._kernel_log = kernel_log
        self._command = 0
        self._last: dict[str, RankRecord] = {}
        """The last look at each record, by its name."""
        self._missed: dict[str, float] = {}
        """When each record was first seen without its process, Unix time."""
        self._judged_at = time.monotonic()
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._judging = threading.Event()
        self._closing = threading.Event()
        # One thread all the time, since the children that it starts end with it.
        self._judge_thread = threading.Thread(target=self._examine_all, daemon=True)
        self._hang: Hang | None = None
        self._excused: Hang | None = None
        """A silence that the judge excuses, since a stage may take long; it is reported only if the
        user stops the job meanwhile."""
        self._moves_since: float | None = None
        self._moving: deque[tuple[float, int, int]] = deque(maxlen=64)
        """The looks at ranks: Unix time, number of live ranks, and of those with recent
        progress."""
        self._stillness = Stillness()
        self._lines: list[str] = []
        """Where the processes were in the code after they had done nothing for a while."""
        self._lines_at = 0.0
        """When `_lines` were taken, seconds of the monotonic clock."""

    def look(self, command: int) -> None:
        """Look at all processes and records once."""
        self._command = command
        try:
            records = self._directory.look().records
        except SourceError:
            records = ()
        for record in records:
            if record.name in self._last or self._is_of(command, record):
                self._last[record.name] = record
                if record.life is not Life.ALIVE:
                    self._missed.setdefault(record.name, time.time())
        self._departures.look([rank_of(record) for record in records if record.name in self._last])
        families = self._families.look()
        members = families.members.get(_COMMAND, ())
        processes = {pid: families.processes[pid] for pid in members}
        self._endings.watch(processes)
        self._bare.look([record.pid for record in self._last.values()])
        still = self._stillness.look(processes, self._bare.still)
        if self._last:
            self._note_moving()
            self._judge()
        elif self._bare.due():
            self._run_in_thread(self._bare.look_at_work)
        if still and still.since > self._lines_at and not self._accounted_for():
            self._run_in_thread(partial(self._look_at, still, tuple(processes)))

    def close(self) -> None:
        """Close the records, unless the thread still reads them; then the end of this process
        does."""
        self._closing.set()
        self._asked.put(None)
        self._bare.close()
        self._endings.close()
        if self._judge_thread.is_alive():
            self._judge_thread.join(END_SECONDS)
        if not self._judge_thread.is_alive():
            self._taker.close()
            self._records.close()

    def story(self, status: int, logged: Cause | None = None) -> str:
        """How the command ended, in one line; `status`: as `os.waitpid` gives it; `logged`: the
        cause in its log."""
        now = time.time()
        took = duration(now - self._began)
        ranks = self._keys()
        hang, cause = self._hang, self._cause(status) if status else None
        if status and logged and ranks and (cause is None or cause.kind >= Kind.WAITED):
            cause = logged
        if not status and ranks:
            all_ranks = f"all {len(ranks)} ranks" if len(ranks) > 1 else "the rank"
            return f"{all_ranks} ended well after {took}"
        at = self._interrupted_at(status, cause) if status else None
        if at is not None:
            hang = hang or self._excused
        if hang and hang.early and at is None and cause and cause.kind < Kind.WAITED:
            hang = None  # which has nothing to do with it
        over = f"ended after {took}{_by_signal(status)}"
        end = f"the command {over}"
        if at is not None:
            step = _step(self._last.values())
            where = "" if step is None else f" at step {step}"
            end = over = f"stopped by Ctrl-C{where}, after {took}"
        if status and hang and (cause is None or hang.seen_at <= cause.time):
            silence, ago = duration(now - hang.since), duration(now - hang.seen_at)
            how = f"hung for {silence}, {over}"
            if hang.early:
                how = f"{end}, the last {silence} without progress"
            return printable(f"{how}; {ago} before the end: {hang.told}")
        if at is not None and ranks:
            return f"{end}{self._went_on(at)}"
        still = self._stillness.lately() if status else None
        asked = cause is None or cause.death in (Death.USER, Death.PREEMPTION)
        if still is not None and still.since <= self._lines_at and asked:
            return "\n".join([f"{end}; before, {still.sentence}:", *self._lines])
        if cause is not None and at is None:
            after = duration(max(0.0, cause.time - self._began))
            then = f"; then nothing went on for {duration(now - cause.time)}" if hang else ""
            does = "ended" if cause.kind in (Kind.LEFT, Kind.ASKED) else "failed"
            killed = self._out_of_memory(cause)
            class_ = cause.death.words if cause.sure or killed else ""
            of = f"{class_}: " if class_ and cause.death is not Death.CODE else ""
            told = f"{of}{cause.whom} {does} first, after {after}: {cause.what}"
            followed = "" if cause is logged else self._followed(cause, status)
            return printable(f"{told}{_SENDER[killed]}{then}{followed}")
        if not ranks:
            end = self._of_processes(end, status)
            of = f"{logged.death.words}: {logged.what}" if logged and status else ""
            return f"{end}\n  {printable(of)}" if of else end
        return f"{end}, and no rank has recorded why"

    def interrupted(self, status: int) -> bool:
        """Whether Ctrl-C has ended the command; `status`: as in `story`."""
        told = bool(status and self._last)
        return told and self._interrupted_at(status, self._cause(status)) is not None

    def _interrupted_at(self, status: int, cause: Cause | None) -> float | None:
        """When the first rank began to end by SIGINT, Unix time, unless another cause came first:
        launchers send SIGINT only for a user.

        A launcher that handles SIGINT may pass on another signal, and exits with 130, as shells do.
        """
        offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        itself = causes.asked(status) == signal.SIGINT
        signals = causes.ASKED_TO_END if itself else {signal.SIGINT}
        ends = [
            record.closed_at + offset if record.closed_at else ending.time
            for record in self._last.values()
            if (ending := self._ending(record, status)) and ending.signal in signals
        ]
        if itself and not self._last:
            ends = [one.time for one in self._endings.seen() if one.signal in signals]
        at = min(ends, default=time.time() if itself else math.inf)
        own = cause is not None and cause.kind <= Kind.HELPER and cause.time < at - DEATH_SECONDS
        return None if own or at == math.inf else at

    def _ending(self, record: RankRecord, status: int) -> Ending | None:
        """The end of a rank, which may be the command itself.

        An end that was not seen counts as the one that the command was asked for: init reaps the
        children of an ended launcher."""
        ending, asked = self._endings.of(record.pid, record.start_ticks), causes.asked(status)
        if record.pid == self._command:
            return replace(ending, status=status) if ending else None
        if asked and (ending.status is None if ending else record.name in self._missed):
            time_ = ending.time if ending else self._missed[record.name]
            return Ending(record.pid, record.start_ticks, "", time_, asked)
        return ending

    def _went_on(self, at: float) -> str:
        """How many ranks still made progress, by the look before a Unix time."""
        before = [look for look in self._moving if look[0] < at - BEFORE_SECONDS]
        for _, live, moving in before[-1:] or [*self._moving][:1]:
            if moving < live:
                return f"; {moving} of {live} ranks made progress in the last minute"
            return f"; all {live} ranks made progress" if live > 1 else "; its rank made progress"
        return ""

    def _of_processes(self, end: str, status: int) -> str:
        """The story of a command without any record."""
        seen = self._endings.seen() if status else []
        endings = self._ending_lines(one for one in seen if one.status and one.pid != self._command)
        return "\n  ".join([f"no rank kept a record; {end}", *endings])

    def _ending_lines(self, endings: Iterable[Ending]) -> list[str]:
        """A line for each of the latest processes that have ended."""
        names = self._bare.names
        told = [f"{causes.process_name(one, names)}: {ended(one.status)}" for one in endings]
        return [printable(line) for line in told[-MAX_ENDINGS:]]

    def _keys(self) -> set[Key]:
        """Job, role and number of each rank."""
        return {(record.job_id, record.role, record.rank) for record in self._last.values()}

    def _root(self) -> list[Rank]:
        """The command as the head of a family."""
        return [Rank(*_COMMAND[:2], 0, self._command)] if self._command else []

    def _pids(self) -> Iterable[int]:
        """The command's processes."""
        return self._families.look().members.get(_COMMAND, ())

    # ---- How did it end? ------------------------------------------------------------------------

    def _of_ranks(self, status: int) -> list[Cause]:
        """The causes of all ranks that have ended."""
        offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        now = time.time()
        of_ranks = (
            causes.of_rank(
                record, self._ending(record, status), self._missed.get(name, now), offset
            )
            for name, record in self._last.items()
        )
        return [cause for cause in of_ranks if cause is not None]

    def _followed(self, first: Cause, status: int) -> str:
        """What became of the other ranks."""
        ends = {_rank_of(one): one.kind for one in self._of_ranks(status)}
        kinds = [kind for whose, kind in ends.items() if whose != _rank_of(first)]
        stopped = kinds.count(Kind.ASKED)
        failed = len(kinds) - stopped - kinds.count(Kind.LEFT)
        counts = [(failed, "failed"), (stopped, "were stopped" if stopped > 1 else "was stopped")]
        told = [f"{count} rank{'s' * (count > 1)} {did}" for count, did in counts if count]
        return f"; after that, {' and '.join(told)}" if told else ""

    def _cause(self, status: int) -> Cause | None:
        of_ranks = self._of_ranks(status)
        pids = {record.pid for record in self._last.values()} | {self._command}
        helpers = [ending for ending in self._endings.seen() if ending.pid not in pids]
        until = min((cause.time for cause in of_ranks), default=time.time())
        log = Kmsg(self._kernel_log)
        bare = self._bare.names
        names = {one.pid: causes.process_name(one, bare) for one in self._endings.seen()}
        names |= {pid: f"{name} (pid {pid})" for (pid, _), name in bare.items()}
        names |= {
            one.pid: f"{causes.rank_name(one)} (pid {one.pid})" for one in self._last.values()
        }
        of_kernel = causes.of_kernel(log, self._began, names)
        of_helpers = causes.of_helpers(helpers, until, apart=bool(self._last), names=bare)
        found = first([*of_ranks, *of_helpers, *of_kernel])
        log.close()
        return found

    def _out_of_memory(self, cause: Cause) -> bool | None:
        """Whether the kernel may have sent a SIGKILL; `None` for other ends, and if unknown."""
        now = causes.oom_kills()
        if "SIGKILL" not in cause.what or now is None or self._oom_kills is None:
            return None
        return now > self._oom_kills

    # ---- Does it hang? --------------------------------------------------------------------------

    def _note_moving(self) -> None:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        living = [record for record in self._last.values() if record.life is Life.ALIVE]
        moving = sum(record.progress > now - AFRESH_SECONDS for record in living)
        if living:
            self._moving.append((time.time(), len(living), moving))

    def _judge(self) -> None:
        """Begin to judge the job if it is time to, in the thread, so that signals need not wait."""
        living = [record for record in self._last.values() if record.life is Life.ALIVE]
        if not living:
            return  # what was wrong last stays: the command is being ended
        progress = max(record.progress for record in living)
        quiet = time.clock_gettime(time.CLOCK_BOOTTIME) - progress if progress else QUIET_SECONDS
        if quiet < QUIET_SECONDS:
            self._note_progress(_step(living))
            return
        self._moves_since = None
        names = {record.name for record in living}
        if self._hang is not None and not names <= self._hang.living:
            self._hang = None  # ranks have begun since
        hang = self._hang
        if hang is not None and (
            (hang.progress != progress and quiet < AFRESH_SECONDS) or names < hang.living
        ):
            return  # who moves or ends after a hang is being ended
        if time.monotonic() - self._judged_at < AGAIN_SECONDS * (1 if hang is None else 3):
            return
        self._run_in_thread(partial(self._examine, living, self._keys(), progress))

    def _run_in_thread(self, question: Callable[[], None]) -> None:
        """Run this in the thread, unless the thread is busy."""
        if self._judging.is_set():
            return
        self._judging.set()
        if not self._judge_thread.is_alive():
            self._judge_thread.start()
        self._asked.put(question)

    def _look_at(self, still: Still, pids: Sequence[int]) -> None:
        """Report where the processes stand that do nothing any more, before the user ends them."""
        with closing(GuardedFiles(self._proc.root)) as files:
            self._lines = lines(pids, self._proc, files, self._taker, self._bare.names)
        self._lines += self._ending_lines(
            one for one in self._endings.seen() if one.signal in causes.FATAL
        )
        self._lines_at = time.monotonic()
        self._tell("\n".join([f"{still.sentence}; they stand here:", *self._lines]))

    def _accounted_for(self) -> bool:
        """Whether the standstill is explained: a stage or a collective takes its time, a pause was
        announced, progress was made, the judge has answered, or all ranks have ended."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        living = [record for record in self._last.values() if record.life is Life.ALIVE]
        if self._hang is not None or (self._last and not living):
            return True
        return any(
            record.progress > now - STILL_SECONDS
            or record.expected_until > now
            or (record.open is not None and not record.unmarked)
            or bool(record.inside)
            for record in living
        )

    def _note_progress(self, step: int | None) -> None:
        """Forget a hang that is over, and report that if the hang was reported."""
        now = time.monotonic()
        self._moves_since = now if self._moves_since is None else self._moves_since
        moved, hang = now - self._moves_since, self._hang

        def over(one: Hang) -> bool:
            return (step or 0) > (one.step or 0) or moved > RECOVERED_SECONDS

        if self._excused and over(self._excused):
            self._excused = None
        if hang and over(hang):
            self._hang = None
            if not hang.early:
                silence = duration(time.time() - moved - hang.since)
                self._tell(f"the job goes on, after {silence} without progress; {_ANNOUNCE}")

    def _examine_all(self) -> None:
        while (asked := self._asked.get()) is not None and not self._closing.is_set():
            with contextlib.suppress(StagewatchError, OSError):
                asked()
            self._judged_at = time.monotonic()
            self._judging.clear()

    def _examine(self, living: list[RankRecord], ours: set[Key], progress: float) -> None:
        """Judge the job, and take stacks if something is wrong."""
        facts = observe(
            self._directory, self._proc, looks=LOOKS, pause=PAUSE_SECONDS, sleep=self._pause
        )
        facts = [fact for fact in facts if (fact.job_id, fact.role, fact.rank) in ours]
        left = self._departures.facts(facts)
        verdicts = judge([*facts, *left])
        facts = gather(map(rank_of, living), facts, verdicts, self._taker, self._pause)
        verdicts = marked_early(judge([*facts, *left]), shown_by(map(rank_of, living)))
        wrong = next((one for one in verdicts if one.wrong), None)
        now = time.time()  # before the last look at the ranks, so that no end comes before it
        if not verdicts or self._closing.is_set() or not self._all_live(living):
            return
        quiet = time.clock_gettime(time.CLOCK_BOOTTIME) - progress if progress else 0.0
        names, step = frozenset(record.name for record in living), _step(living)
        seen = partial(Hang, progress, now - quiet, now, step=step, living=names)
        if wrong is None:
            told = "; ".join(map(sentence, verdicts))
            self._excused = seen(told, placed=False, early=True)
            return
        told, placed = sentence(wrong), all(rank.stack.group for rank in wrong.culprits)
        if self._hang is not None and self._hang.placed and not placed:
            return  # a rank that is being ended shows its stack no more
        if self._hang is None or (self._hang.early and not wrong.early):
            self._tell(told)
        self._hang = seen(told, placed=placed, early=wrong.early)

    def _pause(self, seconds: float) -> None:
        self._closing.wait(seconds)

    def _all_live(self, living: list[RankRecord]) -> bool:
        """Whether no rank has ended since, or closed its record."""
        records = self._directory.look().records
        alive = {record.name for record in records if record.life is Life.ALIVE}
        return all(one.name in alive for one in living) and not any(
            self._endings.of(one.pid, one.start_ticks) for one in living
        )

    def _is_of(self, command: int, record: RankRecord) -> bool:
        """Whether the writer of a record is a descendant of the command; if it has ended, whether
        it belonged to a job of the command."""
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


def _rank_of(cause: Cause) -> str:
    """The rank of a cause, without the start of the job."""
    return cause.whom.partition(" (pid ")[0]


def _step(records: Iterable[RankRecord]) -> int | None:
    """The furthest step of these ranks."""
    lanes = [record.training for record in records]
    return max((lane.step for lane in lanes if lane and lane.step is not None), default=None)


def _by_signal(status: int) -> str:
    """Words for the signal that has ended the command; empty without one."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return f" by {signal.Signals(number).name}" if number in set(signal.Signals) else ""
