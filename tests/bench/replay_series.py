"""What a node agent exports for a job whose life is acted out on a fake clock.

The real client writes the stage records of all ranks, and the agent's real collector makes the
series of them.  What the agent reads of the operating system is acted: `classify` is given looks at
a thread that behaves as its manner says, and `rl_rank_at_work` follows from the manner alone.

Series are made in windows: around every time in which a rank is gone, begins, or makes no mark for
longer than ten seconds and than it has recovered from in that stage lately.  Elsewhere the rules on
stalls are silent by their first condition (no rank is overdue), and none of them looks back further
than a window begins before.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
import random
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from stagewatch import client
from stagewatch.client import _api, _lane, _recorder
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Histogram, Samples
from stagewatch.ranks.activity import INFO, WAIT_CLASS
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.records import Life, RankRecord, parse
from stagewatch.ranks.stages import STARTED, StagesCollector
from stagewatch.ranks.wait_class import WINDOW_SAMPLES, Sample, classify
from stagewatch.ranks.work import AT_WORK, WINDOW_SECONDS

DAY = 86_400
RANKS = 4
GONE_SECONDS = 600
"""How long the agent shows a rank that was killed."""
QUIET_SECONDS = 10.0
"""Without a mark for less, no rank is looked at by the rules (limit `taught`)."""
LATELY = 6 * 3600
"""Seconds for which a recovered gap surely keeps budgets above its length: 1.5 times of it, faded
by a seventh (`GAP_MEMORY`)."""
BEFORE, AFTER = 75, 30
"""Seconds of a window before and after its cause: the rules compare with a minute ago."""
REMEMBERED = 3600
"""Seconds after all ranks were stopped: the rules excuse budgets up to that length by it."""
WARM_UP = 15
"""Seconds of looks at a thread before a window, as many as `rl_rank_at_work` is judged by."""
GRID = 30
"""Windows begin at multiples of it, so that all intervals scrape at the times of a whole day."""


Columns = dict[str, list[str | None]]
"""By series: its values at consecutive scrapes."""


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


MANNERS = {
    "gpu": Manner(),  # launches kernels, or polls the device, or collects garbage
    "asleep": Manner("S", 0.01),
    "children": Manner("S", 0.01, work="children"),
    "compiles": Manner(page_faults=5000, work="compute"),
    "saves": Manner("D", 0.3, 200, "folio_wait_writeback", "io"),
    "reads": Manner("D", 0.2, 200, "nfs_wait_on_request", "io"),
    "waits for storage": Manner("D", 0.0, 0, "nfs_wait_on_request"),
    "stopped": Manner("T", 0.0),
}


def _become(recorder: _recorder.Recorder | None) -> None:
    """Let the client's functions write to another rank's record, as if in its process."""
    _api._recorder = recorder


class Rank:
    """One process of a job: its record, and what it does."""

    stage: client.stage
    call: client.collective

    def __init__(self, job: Job, number: int) -> None:
        _become(None)
        client.init("train", job_id=job.id, rank=number, world_size=RANKS, directory=job.records)
        recorder = _api._recorder
        assert recorder is not None, "the client could make no record"
        lane = recorder.lane()
        assert lane is not None
        self.recorder, self.lane = recorder, lane
        self.number, self.id = number, job.id
        self.born = job.now
        self.killed: float | None = None
        self.manner = MANNERS["gpu"]
        self.window: deque[Sample] = deque(maxlen=WINDOW_SAMPLES)
        self.work: deque[str] = deque(maxlen=int(WINDOW_SECONDS))
        self._sample = Sample(0.0, "R", "", 0.0, 0, 0, 0)
        self._read: tuple[bytes, RankRecord] | None = None

    def act(self, what: str, manner: str, stage: str, step: int, mark: bool) -> None:
        """Call the client as a trainer does."""
        _become(self.recorder)
        if what == "beat":
            client.heartbeat()
        elif what == "begin":
            self.manner = MANNERS[manner]
            if stage:
                self.stage = client.stage(stage, step).__enter__()
        elif what == "meet":
            self.manner = MANNERS["gpu"]
            self.call = client.collective("world", op="all_reduce", size=RANKS).__enter__()
        else:
            self.call.__exit__(None, None, None)
            if stage:
                self.stage.__exit__(None, None, None)
            if mark:
                client.heartbeat(step)

    def tick(self, now: float) -> None:
        """A second has passed."""
        last, manner = self._sample, self.manner
        self._sample = Sample(
            time=now,
            state=manner.state,
            channel=manner.channel,
            run_seconds=last.run_seconds + manner.cpu,
            voluntary=last.voluntary + 5,
            involuntary=0,
            marks=self.lane.marks,
            page_faults=last.page_faults + manner.page_faults,
        )
        self.window.append(self._sample)
        self.work.append(manner.work)

    def read(self) -> RankRecord:
        """The record, as the agent reads it."""
        raw = bytes(self.recorder._raw)
        if self._read is None or self._read[0] != raw:
            record = dataclasses.replace(
                parse(raw), created=self.born, name=f"{self.number}-{self.born}"
            )
            self._read = raw, record
        record = self._read[1]
        return record if self.killed is None else dataclasses.replace(record, life=Life.GONE)


_BOUND = re.compile(r',le="([^"]*)"')
_RANK = re.compile(r'\brank="[^"]*"')


def notation(column: list[str | None], scrapes: int) -> str:
    """Values of so many scrapes as promtool takes them; what is missing after one goes stale."""
    parts = []
    for value, run in itertools.groupby([*column, *[None] * (scrapes - len(column))]):
        count = len(list(run))
        if value is not None:
            parts.append(value if count == 1 else f"{value}x{count - 1}")
            continue
        if parts:
            parts.append("stale")
            count -= 1
        if count:
            parts.append(f"_x{count}")
    return " ".join(parts)


def busy_buckets(columns: Columns) -> Columns:
    """Leave out buckets that count no more than the next smaller one, nor the next larger more.

    What `histogram_quantile` makes of the rest is the same: it looks for the bucket that holds the
    quantile, and for the bound below.  Ranks are summed bucket by bucket, so all keep the same.
    """
    histograms: dict[str, dict[str, str]] = {}
    for name in columns:
        if bound := _BOUND.search(name):
            histograms.setdefault(_BOUND.sub("", name), {})[bound[1]] = name
    kept: dict[str, set[str]] = {}
    for one, buckets in histograms.items():
        busy = kept.setdefault(_RANK.sub("", one), {"+Inf"})
        below = ""
        counts = [count and "0" for count in columns[next(iter(buckets.values()))]]
        for le, name in buckets.items():
            if columns[name] != counts:
                busy |= {below, le}
            below, counts = le, columns[name]
    return {
        name: column
        for name, column in columns.items()
        if not (bound := _BOUND.search(name))
        or bound[1] in kept[_RANK.sub("", _BOUND.sub("", name))]
    }


class Job:
    """A job on one node for a day: scripts call `do`, `start`, `kill` and `end`."""

    def __init__(
        self, name: str, records: Path, days: float, intervals: Sequence[int], used: set[str]
    ) -> None:
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
        self.series: list[dict[int, Columns]] = []
        """By window and interval."""
        self.skipped: dict[str, int] = {}
        self.causes: list[tuple[float, float]] | None = None
        """While the windows are looked for: what makes them."""
        self._stopped: list[tuple[float, float]] = []
        """While the windows are looked for: when all ranks stop; until when rules remember it."""
        self._left: list[tuple[tuple[int, int], dict[int, Columns]]] = []
        self._intervals = intervals
        self._used = used
        self._marked: dict[int, float] = {}
        self._taught: dict[str, tuple[float, float]] = {}
        """By stage: the longest gap lately, and when it ended."""
        self._warm: set[tuple[int, str]] = set()
        self._dead: list[Rank] = []
        self._clock = 0.0
        self._ticks = 0
        self._collector = StagesCollector(
            RankDirectory(self, fresh_for=0),  # type: ignore[arg-type]
            boot_clock=lambda: self._clock + 1000,
        )
        self._labels = f'cluster="replay",node="{name}"'
        self._names: dict[Any, str] = {}

    @property
    def id(self) -> str:
        """Of the job: another one once its ranks have ended properly."""
        return f"{self.name}~{self.lives}"

    def rehearse(self, script: Callable[[Job], None], whole: bool) -> list[tuple[int, int]]:
        """Act all days without client and agent, to find where the windows are."""
        self.causes = []
        while self.now < self.span:
            script(self)
        causes = [(0.0, self.span)] if whole else sorted(self.causes)
        windows: list[tuple[int, int]] = []
        for begin, end in causes:
            remembered = max((until for since, until in self._stopped if since < begin), default=0)
            start = max(0, int(begin - BEFORE) // GRID * GRID)
            stop = min(int(self.span), int(end + AFTER) // GRID * GRID + GRID)
            if windows and start <= max(windows[-1][1] + BEFORE, remembered):
                start, stop = windows[-1][0], max(stop, windows.pop()[1])
            if start < stop:
                windows.append((start, stop))
        return windows

    def live(self, script: Callable[[Job], None], windows: list[tuple[int, int]]) -> None:
        """Act all days."""

        def clock(_: int) -> int:
            return int((self._clock + 1000) * 1e9)

        self.series = [{every: {} for every in self._intervals} for _ in windows]
        self._left = list(zip(windows, self.series, strict=True))
        with (
            mock.patch.object(_lane, "_read_clock", clock),
            mock.patch.object(_recorder, "_read_clock", clock),
        ):
            while self.now < self.span:
                script(self)
            self.end()
            _become(None)

    def start(self) -> None:
        """All ranks begin, under the numbers they had."""
        if self.causes is None:
            self.ranks = [Rank(self, number) for number in range(RANKS)]
        else:
            self.causes.append((self.now, self.now))
            self._marked = dict.fromkeys(range(RANKS), self.now)
            self._warm = set()

    def kill(self) -> None:
        """All ranks die at once, as by a fault that their launcher answers with a restart."""
        for rank in self.ranks:
            rank.killed = self.now
        self._dead, self.ranks = self.ranks, []

    def end(self) -> None:
        """All ranks exit properly."""
        for rank in self.ranks:
            rank.recorder.close()
        self.ranks = []
        self.lives += 1
        self._taught = {}

    def absent(self, seconds: float) -> None:
        """Time passes without a process."""
        if self.causes is not None:
            self.causes.append((self.now, self.now + seconds))
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
        meet = self.now + max(each)
        if self.causes is not None and manner == "stopped":
            self.causes.append((self.now, meet))
            self._stopped.append((self.now, meet + REMEMBERED))
        events = []
        for number, own in enumerate(each):
            beats = [self.now + k * beat for k in range(1, int(own / beat) + 1)] if beat else []
            events += [(self.now, number, "begin"), *((time, number, "beat") for time in beats)]
            # Never at the very time that the last collective ended: no clock stands still.
            events += [(self.now + max(own, 0.001), number, "meet"), (meet, number, "end")]
        for when, number, act in sorted(events, key=operator.itemgetter(0)):
            if self.causes is None:
                self._advance(when)
                self.ranks[number].act(act, manner, stage, self.step, mark)
            elif act == "beat" or (stage and act != "meet") or (mark and act == "end"):
                self._mark(number, when, "idle" if act == "begin" or not stage else stage)
        self.now = meet

    def _mark(self, number: int, when: float, stage: str) -> None:
        """While the windows are looked for: a mark, and the gap before it."""
        assert self.causes is not None
        begun, self._marked[number] = self._marked[number], when
        longest, ended = self._taught.get(stage, (0.0, 0.0))
        gap = when - begun
        lately = when < ended + LATELY
        if gap >= QUIET_SECONDS and not (lately and gap <= longest):
            self.causes.append((begun, when))
        if (number, stage) not in self._warm:
            self._warm.add((number, stage))
        elif gap >= longest or not lately:
            self._taught[stage] = gap, when

    def _advance(self, to: float) -> None:
        """Let the agent look until then, where there is a window."""
        while self.causes is None and self._left:
            (start, stop), series = self._left[0]
            self._ticks = max(self._ticks, start - WARM_UP)
            if self._ticks > to:
                break
            if self._ticks >= stop:
                self._left.pop(0)
                continue
            self._clock = float(self._ticks)
            for rank in self.ranks:
                rank.tick(self._clock)
            due = {k: one for k, one in series.items() if self._ticks % k == 0}
            if due and self._ticks >= start:
                self._look(start, due)
            self._ticks += 1
        self._clock = to

    # What RankDirectory asks of the directory with the records.
    def read(self) -> list[RankRecord]:
        self._dead = [one for one in self._dead if self._clock - (one.killed or 0) < GONE_SECONDS]
        return [rank.read() for rank in (*self._dead, *self.ranks)]

    def available_bytes(self) -> None:
        return None

    def _look(self, start: int, due: dict[int, Columns]) -> None:
        """One look of the agent, and the scrapes that see it."""
        try:
            out = self._collector.collect()
        except NoData:
            out = Samples()
        for rank in self.ranks:
            key = rank.id, "train", str(rank.number)
            out.add(INFO, 1, *key, rank.number, 1000 + rank.number, "", "", RANKS)
            out.add(STARTED, rank.born - start, *key)
            out.add(WAIT_CLASS, 1, *key, classify(list(rank.window)).value)
            for by in {work for work in rank.work if work and rank.work.count(work) > 1}:
                out.add(AT_WORK, 1, *key, by)
        values = {f'up{{job="stagewatch",{self._labels}}}': "1"} | dict(self._flat(out))
        for every, columns in due.items():
            scrape = (self._ticks - start) // every
            for name, value in values.items():
                column = columns.setdefault(name, [])
                column += [None] * (scrape - len(column))
                column.append(value)

    def _flat(self, out: Samples) -> Iterator[tuple[str, str]]:
        """Series that the rules read, with what service discovery adds, and their values."""
        for metric, family in out.families.items():
            for labels, value in family.items():
                key = metric.name, labels
                if isinstance(value, Histogram):
                    if f"{metric.name}_count" in self._used:
                        yield self._name(key, metric.labels, "_count"), str(value.count)
                    if f"{metric.name}_bucket" in self._used:
                        bounds = (*map(repr, value.bounds), "+Inf")
                        for le, count in zip(bounds, (*value.cumulative, value.count), strict=True):
                            name = self._name((*key, le), metric.labels, "_bucket", le)
                            yield name, str(count)
                elif metric.name in self._used:
                    yield self._name(key, metric.labels), f"{value:.12g}"

    def _name(self, key: Any, names: Sequence[str], suffix: str = "", le: str = "") -> str:
        """The text of a series by its metric, its labels' values and perhaps a bound."""
        text = self._names.get(key)
        if text is None:
            pairs = [f"{name}={json.dumps(v)}" for name, v in zip(names, key[1], strict=True) if v]
            pairs += [f'le="{le}"'] if le else []
            text = self._names[key] = f"{key[0]}{suffix}{{{','.join([self._labels, *pairs])}}}"
        return text
