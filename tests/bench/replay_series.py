"""What a node agent exports for a job whose life is acted out on a fake clock.

The real client writes the stage records of all ranks, and the agent's real collector makes the
series of them.  What the agent reads of the operating system is acted: `classify` is given looks at
a thread that behaves as its manner says, and `rl_rank_at_work` follows from the manner alone.

It is looked at every few seconds: always, or while its ranks may be overdue.  These make no mark
for longer than ten seconds, and than they have recovered from in that stage lately; or they are
stopped.  At any other time the judge asks nothing of a job, and steps are only noted down: the
client writes them all at once, on their own times, when somebody looks next.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import operator
import random
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from stagewatch import client
from stagewatch.client import _api, _lane, _recorder
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples
from stagewatch.gpu.device_state import Device
from stagewatch.judgement.limits import MIN_SECONDS
from stagewatch.ranks.activity import DEVICE, INFO, WAIT_CLASS
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.records import Life, RankRecord, parse
from stagewatch.ranks.stages import STARTED, StagesCollector
from stagewatch.ranks.wait_class import WINDOW_SAMPLES, Sample, WaitClass, classify
from stagewatch.ranks.work import AT_WORK, WINDOW_SECONDS
from stagewatch.record import LANES_AT

DAY = 86_400
RANKS = 4
EPOCH = 1000
"""Of the clock that the records are written by, when the job's life begins."""
GONE_SECONDS = 600
"""How long the agent shows a rank that was killed."""
LATELY, SURELY = 6 * 3600, 1.25
"""Seconds for which a recovered gap keeps budgets above so many times its length: 1.5 times of it,
faded by a seventh (`GAP_MEMORY`)."""
MANNERS_KEPT = 512
"""Times at which a rank changed its manner, that are remembered."""

See = Callable[["Job", int, Samples], float]
"""Whoever looks at a job is given the time and what the agent exports then, and answers until when
there is no need for another look unless a rank does something."""


@dataclasses.dataclass(frozen=True)
class Manner:
    """How a thread behaves to whoever looks at it from outside."""

    state: str = "R"
    cpu: float = 1.0
    page_faults: int = 0
    """A second."""
    channel: str = ""
    work: str = ""
    """By what `rl_rank_at_work` shows the rank, if so."""
    device: Device = Device.IDLE
    """What its GPU does."""


MANNERS = {
    "gpu": Manner(device=Device.WORKS),  # launches kernels, or polls the device
    "link": Manner(device=Device.SPINS),  # polls the device, which waits for its peers
    "python": Manner(),
    "asleep": Manner("S", 0.01),
    "children": Manner("S", 0.01, work="children"),
    "compiles": Manner(page_faults=5000, work="compute"),
    "saves": Manner("D", 0.3, 200, "folio_wait_writeback", "io"),
    "reads": Manner("D", 0.2, 200, "nfs_wait_on_request", "io"),
    "waits for storage": Manner("D", 0.0, 0, "nfs_wait_on_request"),
    "stopped": Manner("T", 0.0),
}
_USUAL, _STOPPED = MANNERS["gpu"], MANNERS["stopped"]


@functools.lru_cache(maxsize=4096)
def _class_of(manners: tuple[Manner, ...], marked: bool) -> WaitClass:
    """What the agent makes of a look at a thread in each of some seconds."""
    samples, run, faults = [], 0.0, 0
    for second, manner in enumerate(manners):
        run, faults = run + manner.cpu, faults + manner.page_faults
        marks = int(marked and second > 0)
        samples.append(
            Sample(second, manner.state, manner.channel, run, 5 * second, 0, marks, faults)
        )
    return classify(samples)


def _become(recorder: _recorder.Recorder | None) -> None:
    """Let the client's functions write to another rank's record, as if in its process."""
    _api._recorder = recorder


class Rank:
    """One process of a job: its record, and what it does."""

    opened: client.stage
    call: client.collective
    lead: Rank
    """Who writes what its training thread does."""

    def __init__(self, job: Job, number: int) -> None:
        _become(None)
        client.init("train", job_id=job.id, rank=number, world_size=RANKS, directory=job.records)
        recorder = _api._recorder
        assert recorder is not None, "the client could make no record"
        self.recorder = recorder
        self.number, self.id = number, job.id
        self.born = job.now
        self.killed: float | None = None
        self.met = False
        """Whether it waits in a collective."""
        self.manners = deque([(job.now, _USUAL)], maxlen=MANNERS_KEPT)
        self.lead = job.ranks[0] if job.alike and number else self
        self._read: tuple[bytes, RankRecord] | None = None

    def behave(self, manner: Manner, when: float) -> None:
        """From now on."""
        if manner is not self.manners[-1][1]:
            self.manners.append((when, manner))

    def manners_until(self, when: float, seconds: float) -> list[Manner]:
        """How it has behaved in each of so many seconds, as far as it lived."""
        times = [time for time, _ in self.manners]
        return [
            self.manners[max(0, bisect.bisect_right(times, at) - 1)][1]
            for second in range(int(seconds) - 1, -1, -1)
            if (at := when - second) >= self.born
        ]

    def class_at(self, when: float, marked: float) -> WaitClass:
        """How it waits, by its last mark."""
        manners = tuple(self.manners_until(when, WINDOW_SAMPLES))
        return _class_of(manners, marked > when - WINDOW_SAMPLES + 1)

    def read(self) -> RankRecord:
        """The record, as the agent reads it."""
        mine, its = self.recorder._raw, self.lead.recorder._raw
        raw = bytes(mine[:LANES_AT]) + bytes(its[LANES_AT:])
        if self._read is None or self._read[0] != raw:
            record = dataclasses.replace(
                parse(raw), created=self.born, name=f"{self.number}-{self.born}"
            )
            self._read = raw, record
        record = self._read[1]
        return record if self.killed is None else dataclasses.replace(record, life=Life.GONE)


class Job:
    """A job on one node for some days: scripts call `do`, `start`, `kill` and `end`."""

    def __init__(
        self,
        name: str,
        records: Path,
        days: float,
        see: See,
        *,
        every: int = 5,
        always: bool = False,
        alike: bool = False,
        gpus: bool = False,
    ) -> None:
        """`every`: seconds between two looks; `always`: it is looked at all the time, not only
        where a rank may be overdue; `alike`: its ranks make all marks at the same times, so that
        one of them writes these for all, and how long it waited in collectives; `gpus`: the agent
        reads what their GPUs do."""
        self.name = name
        self.span = days * DAY
        self.lives = 0
        self.records = records
        self.random = random.Random(name)
        self.now = 0.0
        self.ranks: list[Rank] = []
        self.step = 0
        self.pauses: list[tuple[float, float, str]] = []
        """Everything that is no ordinary step: from, to, and what it is."""
        self.looks = 0
        self.skipped: dict[str, int] = {}
        self.alike, self.gpus = alike, gpus
        self._see, self._every, self._always = see, every, always
        self._longest: dict[str, tuple[float, float]] = {}
        """By stage: the longest gap lately, and when it ended."""
        self._warm: set[str] = set()
        """Stages of which all ranks have shown a gap."""
        self._stage = "idle"
        self._marked: list[float] = []
        """When the ranks last made a mark."""
        self._dead: list[Rank] = []
        self._stopped_until = -1.0
        self._calm_until = 0.0
        self._unseen: list[tuple[float, float, str, int, bool]] = []
        """Steps that no client has written yet: when they begin and end, stage, number, and whether
        a heartbeat ends them."""
        self._boot_ns = EPOCH * 10**9
        self._collector = StagesCollector(
            RankDirectory(self, fresh_for=0),  # type: ignore[arg-type]
            boot_clock=lambda: self._boot_ns / 1e9,
        )

    @property
    def id(self) -> str:
        """Of the job: another one once its ranks have ended properly."""
        return f"{self.name}~{self.lives}"

    def live(self, script: Callable[[Job], None]) -> None:
        """Act all days."""

        def clock(_: int) -> int:
            return self._boot_ns

        with (
            mock.patch.object(_lane, "_read_clock", clock),
            mock.patch.object(_recorder, "_read_clock", clock),
        ):
            while self.now < self.span:
                script(self)
            self.end()
            _become(None)

    def reason(self, time: float) -> str:
        """What the job did: the pause that began last, if it was not over long before."""
        at = bisect.bisect_right(self.pauses, time, key=operator.itemgetter(0))
        over_at, why = self.pauses[at - 1][1:] if at else (-60.0, "")
        return why if over_at > time - 60 else "an ordinary step"

    def start(self) -> None:
        """All ranks begin, under the numbers they had."""
        self._advance(self.now)
        for number in range(RANKS):
            self.ranks.append(Rank(self, number))
        self._stage, self._marked, self._warm = "idle", [self.now] * RANKS, set()

    def kill(self) -> None:
        """All ranks die at once, as by a fault that their launcher answers with a restart."""
        self._collect()  # what they have shown goes on to count
        for rank in self.ranks:
            rank.killed = self.now
        self._dead, self.ranks = self.ranks, []

    def end(self) -> None:
        """All ranks exit properly."""
        self._unseen = []  # as nobody will read their records
        for rank in self.ranks:
            rank.recorder.close()
        self.ranks = []
        self.lives += 1
        self._longest = {}

    def absent(self, seconds: float) -> None:
        """Time passes without a process."""
        self.now += seconds
        self._advance(self.now)

    def pause(self, why: str, seconds: float | Sequence[float], manner: str, **rest: Any) -> None:
        """Do something that is no ordinary step."""
        before = self.now
        self.do(seconds, manner, **rest)
        self.pauses.append((before, self.now, f"{why}, {self.now - before:.0f} s"))

    def do(
        self,
        seconds: float | Sequence[float],
        manner: str = "gpu",
        *,
        stage: str = "",
        beat: float = 0.0,
        mark: bool = False,
    ) -> None:
        """Every rank works for its seconds, in a stage or outside, then they meet in a collective.

        `beat`: seconds between heartbeats while it works; `mark`: a heartbeat at the end.  A rank
        that works for no time only waits.
        """
        each = [seconds] * RANKS if isinstance(seconds, (int, float)) else seconds
        begin, meet, behaves = self.now, self.now + max(each), MANNERS[manner]
        if behaves is _STOPPED:
            self._stopped_until = meet + WINDOW_SAMPLES
        marked = begin if stage else min(self._marked)
        if (
            behaves is _USUAL
            and not beat
            and not self._always
            and self._stopped_until < begin
            and not self._overdue(stage or "idle", marked, meet)
        ):  # nobody looks meanwhile
            self._unseen.append((begin, meet, stage, self.step, mark))
            if stage:
                self._mark(begin, stage)
            if stage or mark:
                self._mark(meet)
            self._calm_until = 0.0
            self._set_clock(meet)
        else:
            self._write_unseen()
            events: list[tuple[float, str, int]] = [(begin, "begin", -1), (meet, "end", -1)]
            for number, own in enumerate(each):
                for k in range(1, int(own / beat) + 1) if beat else ():
                    events.append((begin + k * beat, "beat", number))
                # Never at the very time that the last one ended: no clock stands still.
                events.append((begin + max(own, 0.001), "meet", number))
            for when, act, number in sorted(events, key=lambda one: (one[0], one[1] == "end")):
                self._advance(when)
                for rank in self.ranks if number < 0 else [self.ranks[number]]:
                    self._act(rank, act, when, behaves, stage, mark)
                if act == "begin" and stage:
                    self._mark(when, stage)
                elif act == "end" and (stage or mark):
                    self._mark(when)
        self.now = meet

    def _act(
        self, rank: Rank, act: str, when: float, manner: Manner, stage: str, mark: bool
    ) -> None:
        """Call the client as a trainer does."""
        _become(rank.recorder)
        self._calm_until, leads = 0.0, rank.lead is rank
        if act == "beat":
            client.heartbeat()
            self._marked[rank.number] = when
            self._warm.add(self._stage)
        elif act == "begin":
            rank.behave(manner, when)
            if stage and leads:
                rank.opened = client.stage(stage, self.step).__enter__()
        elif act == "meet":
            rank.behave(_USUAL, when)
            rank.met = True
            rank.call = client.collective("world", op="all_reduce", size=RANKS).__enter__()
        else:
            rank.call.__exit__(None, None, None)
            rank.met = False
            if stage and leads:
                rank.opened.__exit__(None, None, None)
            if mark and leads:
                client.heartbeat(self.step)

    def _write_unseen(self) -> None:
        """Let the client write the steps that nobody has looked at; one collective stands for all
        of theirs."""
        unseen, self._unseen, now = self._unseen, [], self._boot_ns
        for rank in self.ranks if unseen else ():
            _become(rank.recorder)
            for begin, meet, stage, step, mark in unseen if rank.lead is rank else ():
                self._set_clock(begin)
                with client.stage(stage, step) if stage else contextlib.nullcontext():
                    self._set_clock(meet)
                if mark:
                    client.heartbeat(step)
            self._boot_ns = now
            with client.collective("world", op="all_reduce", size=RANKS):
                pass

    def _set_clock(self, when: float) -> None:
        self._boot_ns = int((when + EPOCH) * 1e9)

    def _mark(self, when: float, stage: str = "idle") -> None:
        """Note a mark of all ranks, the gap before it, and in what stage they are from now on."""
        gap, self._marked = when - min(self._marked), [when] * RANKS
        if self._stage not in self._warm:
            self._warm.add(self._stage)
        elif gap * SURELY > MIN_SECONDS:
            longest, ended = self._longest.get(self._stage, (0.0, 0.0))
            if gap >= longest or when > ended + LATELY:
                self._longest[self._stage] = gap, when
        self._stage = stage

    def _overdue(self, stage: str, marked: float, now: float) -> bool:
        """Whether a rank may seem to be, by its last mark."""
        gap = now - marked
        if gap <= MIN_SECONDS:
            return False
        longest, ended = self._longest.get(stage, (0.0, 0.0))
        return gap > longest * SURELY or now > ended + LATELY

    def _advance(self, to: float) -> None:
        """Let whoever looks do so until then."""
        at = int(self._clock // self._every + 1) * self._every
        while at <= min(to, self.span):
            overdue = self.ranks and self._overdue(self._stage, min(self._marked), at)
            stopped = self.ranks and at <= self._stopped_until
            if self._always or (at >= self._calm_until and (overdue or stopped)):
                self._set_clock(at)
                calm = self._see(self, at, self._collect())
                self.looks += 1
                changed = max((rank.manners[-1][0] for rank in self.ranks), default=0.0)
                if at >= changed + WINDOW_SAMPLES:  # how they wait is seen as it will be
                    self._calm_until = calm
            at += self._every
        self._set_clock(to)

    @property
    def _clock(self) -> float:
        return self._boot_ns / 1e9 - EPOCH

    # What RankDirectory asks of the directory with the records.
    def read(self) -> list[RankRecord]:
        now = self._clock
        self._dead = [one for one in self._dead if now - (one.killed or 0) < GONE_SECONDS]
        return [rank.read() for rank in (*self._dead, *self.ranks)]

    def available_bytes(self) -> None:
        return None

    def _collect(self) -> Samples:
        """What the agent exports now."""
        self._write_unseen()
        try:
            out = self._collector.collect()
        except NoData:
            out = Samples()
        now = self._clock
        for rank, marked in zip(self.ranks, self._marked, strict=False):
            key = rank.id, "train", str(rank.number)
            out.add(INFO, 1, *key, rank.number, 1000 + rank.number, "", "", RANKS)
            out.add(STARTED, rank.born, *key)
            out.add(WAIT_CLASS, 1, *key, rank.class_at(now, marked).value)
            if self.gpus:
                device = Device.SPINS if rank.met else rank.manners[-1][1].device
                out.add(DEVICE, 1, *key, device.value)
            work = [manner.work for manner in rank.manners_until(now, WINDOW_SECONDS)]
            for by in {one for one in work if one and work.count(one) > 1}:
                out.add(AT_WORK, 1, *key, by)
        return out
