"""The last ten minutes of every rank as a strip of stages, from the events in its record.

A strip is a row of slots; a slot has one stage.  If steps are shorter than a slot, the slots have
the proportions of the stages.  Strips are made only for a viewer of the page, and so seldom that
they take a small share of a core, however many there are.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from stagewatch.core.errors import SourceError
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.events import Kind, parse_events
from stagewatch.ranks.model import RankKey
from stagewatch.ranks.records import Life, RankRecord
from stagewatch.web.facts import SLOTS, STRIP_SECONDS, Segment

SHARE = 0.001
"""Most of a core that strips take, apart from the first time."""
MIN_SECONDS = 4.0
MAX_RANKS = 64
"""Ranks with a strip."""

_SLOT = STRIP_SECONDS / SLOTS
Span = tuple[float, float, str]
"""From, to (seconds since boot) and stage."""


class Strips:
    """The strips of the ranks of running jobs, by rank."""

    def __init__(self, ranks: RankDirectory) -> None:
        self._ranks = ranks
        self._making = threading.Lock()
        self._due = 0.0
        self._latest: Mapping[RankKey, Sequence[Segment]] = {}
        self._closed: dict[str, deque[Span]] = {}
        """Stages that have ended, by the name of the record, in the order of their ends."""

    def __call__(self) -> Mapping[RankKey, Sequence[Segment]]:
        """The strips as of some seconds ago."""
        with self._making:
            if time.monotonic() >= self._due:
                began = time.thread_time()
                self._latest = self._make()
                took = time.thread_time() - began
                self._due = time.monotonic() + max(MIN_SECONDS, took / SHARE)
            return self._latest

    def _make(self) -> Mapping[RankKey, Sequence[Segment]]:
        try:
            ranks = self._ranks.look().ranks
        except SourceError:
            return {}
        alive = {rank.job_id for rank in ranks if rank.life is Life.ALIVE}
        shown = [rank for rank in ranks if rank.record and rank.job_id in alive][:MAX_RANKS]
        names = {rank.record.name for rank in shown if rank.record}
        self._closed = {name: spans for name, spans in self._closed.items() if name in names}
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return {
            rank.key: slots(self._spans(rank.record, now), now) for rank in shown if rank.record
        }

    def _spans(self, record: RankRecord, now: float) -> list[Span]:
        """The stages of the training thread since ten minutes ago; those that are open end now."""
        closed = self._closed.setdefault(record.name, deque())
        while closed and closed[0][1] < now - STRIP_SECONDS - _SLOT:
            closed.popleft()
        lane = record.training
        copy = self._ranks.recording(record)
        if lane is None or copy is None:
            return list(closed)
        position = record.lanes.index(lane)
        after = max(closed[-1][1] if closed else 0.0, now - STRIP_SECONDS - _SLOT)
        for event in parse_events(
            copy.raw, copy.boot_ns, after_ns=int(after * 1e9), only=Kind.LEAVE
        ):
            if event.lane == position and event.began_ns is not None:
                closed.append((event.began_ns / 1e9, event.boot_ns / 1e9, event.stage))
        if record.life is not Life.ALIVE:  # the time of its death is unknown
            return list(closed)
        frames = [(frame.started, now, frame.stage) for frame in lane.frames]
        return [*closed, *(frames or [(now, now, "idle")])]


def slots(spans: Iterable[Span], now: float) -> list[Segment]:
    """The strip that ends now: at most `SLOTS` segments, with `idle` between two stages.

    The time before the first stage is left empty.  Slots begin at multiples of their length, so
    that those of all ranks are the same.
    """
    first = int(now / _SLOT) - SLOTS + 1
    shares: list[Counter[str]] = [Counter() for _ in range(SLOTS)]
    for begin, close, stage in _innermost(spans):
        at, end = max(begin, first * _SLOT), min(close, now)
        while at < end:
            place = min(SLOTS - 1, max(0, int(at / _SLOT) - first))
            until = min(end, (first + place + 1) * _SLOT)
            if until <= at:
                break
            shares[place][stage] += until - at  # type: ignore[assignment]
            at = until
    segments: list[Segment] = []
    owed: Counter[str] = Counter()
    """Seconds of each stage that no slot has shown yet."""
    for place, share in enumerate(shares):
        if not share:
            continue
        owed.update(share)
        stage = max(share, key=lambda name: owed[name])
        owed[stage] -= sum(share.values())
        last = segments[-1] if segments else None
        if last is not None and last.stage == stage and last.start + last.length == place:
            segments[-1] = Segment(stage, last.start, last.length + 1)
        else:
            segments.append(Segment(stage, place, 1))
    return segments


def _innermost(spans: Iterable[Span]) -> Iterator[Span]:
    """The spans, cut so that none overlap, with `idle` between them."""
    at = float("-inf")
    open_spans: list[tuple[float, str]] = []

    def until(moment: float) -> Iterator[Span]:
        nonlocal at
        while open_spans and open_spans[-1][0] <= moment:
            end, stage = open_spans.pop()
            if end > at:
                yield at, end, stage
                at = end
        if moment > at and at != float("-inf") and moment != float("inf"):
            yield at, moment, open_spans[-1][1] if open_spans else "idle"
        at = max(at, moment)

    for begin, end, stage in sorted(spans, key=lambda span: (span[0], -span[1])):
        yield from until(begin)
        open_spans.append((end, stage))
    while open_spans:
        yield from until(open_spans[-1][0])
