"""Makes events of the Trace Event Format from the ranks' records.

A rank is a process of the trace; its threads, its groups of collectives and its wait class are
threads of it.  Times are whole Unix microseconds: a double has no room for more.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from stagewatch.ranks.events import Event, Kind, parse_events
from stagewatch.ranks.records import Frame, Life, Recording
from stagewatch.record import FRAMES

MAX_ROWS = 16
"""Most rows for slices of one track that overlap, as those of asyncio tasks do."""
_SAME_NS = 1000
"""Times of a record in seconds are as exact as this."""

Args = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that lasted; times in Unix microseconds."""

    track: str
    start: int
    end: int
    name: str
    args: Args = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Instant:
    """Something that happened at a moment; `value` makes it a sample of a counter."""

    track: str
    time: int
    name: str
    args: Args = field(default_factory=dict)
    value: float | None = None


class Trace:
    """Writes a trace, one process after the other; `close` ends it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._processes = 0
        self.events = 0
        self.earliest: int | None = None
        stream.write('{"displayTimeUnit": "ms", "traceEvents": [')

    def process(self, name: str, parts: Iterable[Slice | Instant], order: int = 0) -> int:
        """Write a process, and return its number for `further`; a lower `order` is further up."""
        self._processes += 1
        number = self._processes
        self._put("M", number, 0, "process_name", args={"name": name})
        self._put("M", number, 0, "process_sort_index", args={"sort_index": order})
        self.further(number, parts)
        return number

    def further(self, process: int, parts: Iterable[Slice | Instant], first: int = 1) -> None:
        """Write threads of a process, numbered from `first` on."""
        tracks: dict[str, list[Slice | Instant]] = defaultdict(list)
        for part in parts:
            tracks[part.track].append(part)
        thread = first
        for name, content in tracks.items():
            rows = list(_rows([part for part in content if isinstance(part, Slice)]))
            for row in range(1 + max((row for row, _ in rows), default=0)):
                shown = f"{name} ({row + 1})" if row else name
                self._put("M", process, thread + row, "thread_name", args={"name": shown})
                index = {"sort_index": thread + row}
                self._put("M", process, thread + row, "thread_sort_index", args=index)
            for row, one in rows:
                lasted = one.end - one.start
                self._put("X", process, thread + row, one.name, one.start, one.args, dur=lasted)
            for moment in content:
                if isinstance(moment, Instant):
                    self._instant(process, thread, moment)
            thread += 1 + max((row for row, _ in rows), default=0)

    def close(self, about: Args) -> None:
        """Write the end, with the facts about the trace."""
        self._stream.write(f'\n], "otherData": {json.dumps(about)}}}\n')

    def _instant(self, process: int, thread: int, one: Instant) -> None:
        if one.value is None:
            self._put("i", process, thread, one.name, one.time, one.args, s="t")
        elif math.isfinite(one.value):
            self._put("C", process, thread, one.name, one.time, {"value": one.value})
        else:  # JSON has no infinity
            self._put("i", process, thread, f"{one.name} = {one.value}", one.time, s="p")

    def _put(
        self,
        phase: str,
        process: int,
        thread: int,
        name: str,
        time: int = 0,
        args: Args | None = None,
        **more: Any,
    ) -> None:
        event = {"ph": phase, "pid": process, "tid": thread, "name": name, "cat": "stagewatch"}
        event |= {"ts": time, "args": args or {}} | more
        if phase != "M":
            self.earliest = time if self.earliest is None else min(self.earliest, time)
        self._stream.write(("," if self.events else "") + "\n" + json.dumps(event))
        self.events += 1


def _rows(slices: list[Slice]) -> Iterator[tuple[int, Slice]]:
    """The slices with their rows, so that all slices of a row nest; slices without a row are
    dropped."""
    open_until: list[list[int]] = []
    for one in sorted(slices, key=lambda one: (one.start, -one.end)):
        for row in range(MAX_ROWS):
            if row == len(open_until):
                open_until.append([])
            ends = open_until[row]
            while ends and ends[-1] <= one.start:
                ends.pop()
            if not ends or one.end <= ends[-1]:
                ends.append(one.end)
                yield row, one
                break


def rank_parts(recording: Recording, last_seconds: float = 0.0) -> Iterator[Slice | Instant]:
    """The events of a rank; only those in its last seconds, if these are given."""
    since = recording.wall_ns // 1000 - round(last_seconds * 1e6) if last_seconds else 0
    events = parse_events(recording.raw, recording.boot_ns)
    for part in _Rank(recording, events).parts():
        if (part.end if isinstance(part, Slice) else part.time) >= since:
            yield part


def rank_name(recording: Recording, node: str) -> str:
    """The name of a rank's process."""
    record = recording.record
    gone = "" if record.life is Life.ALIVE else f" ({record.life.value})"
    return f"{record.role}/{record.rank} on {node}{gone}"


class _Rank:
    """Pairs starts with their ends."""

    def __init__(self, recording: Recording, events: list[Event]) -> None:
        self._record = recording.record
        self._events = events
        self._end = recording.boot_ns
        self._offset = recording.wall_ns - recording.boot_ns

    def parts(self) -> Iterator[Slice | Instant]:
        lanes: dict[int, list[Event]] = defaultdict(list)
        groups: dict[str, list[Event]] = defaultdict(list)
        scalars: list[Event] = []
        for event in self._events:
            if event.lane is not None:
                lanes[event.lane].append(event)
            elif event.kind is Kind.SCALAR:
                scalars.append(event)
            else:
                groups[event.name].append(event)
        frames = dict(enumerate(lane.frames for lane in self._record.lanes))
        for lane in sorted(lanes.keys() | frames.keys()):
            yield from self._lane(lane, lanes[lane], frames.get(lane, ()))
        for group in sorted(groups):
            yield from self._group(group, groups[group])
        for event in scalars:
            time = self._at(event.boot_ns)
            yield Instant("scalars", time, event.name or "scalar", value=event.value)

    def _lane(
        self, lane: int, events: list[Event], frames: tuple[Frame, ...]
    ) -> Iterator[Slice | Instant]:
        track = f"thread {lane}" if lane else "training thread"
        entered: dict[int, Event] = {}
        for event in events:
            if event.kind is Kind.ENTER:
                entered[event.boot_ns] = event
            elif event.kind is Kind.LEAVE:
                began = event.began_ns or event.boot_ns
                enter = entered.pop(began, None)
                step = enter.step if enter else None
                yield self._stage(track, began, event.boot_ns, event.stage, event.name, step)
            else:
                failed = event.kind is Kind.FAILURE
                name = (event.name or "exception") if failed else f"step {event.step}"
                args: Args = {"stage": event.stage, "step": event.step} if failed else {}
                yield Instant(track, self._at(event.boot_ns), name, args)
        times = [event.boot_ns for event in events]
        shown = [round(frame.started * 1e9) for frame in frames]
        for began, enter in entered.items():
            at = [n for n, start in enumerate(shown) if abs(start - began) < _SAME_NS]
            end = self._end
            if at:
                shown[at[0]] = 0
            elif len(frames) < FRAMES:  # its end was not recorded, as at a signal's exception
                following = bisect_right(times, began)
                end = times[following] if following < len(times) else end
            left = {"open": True} if end == self._end else {"left": "not recorded"}
            yield self._stage(track, began, end, enter.stage, enter.name, enter.step, **left)
        for frame, start in zip(frames, shown, strict=True):
            if 0 < start <= self._end:  # entered before the oldest event
                yield self._stage(
                    track, start, self._end, frame.stage, frame.substage, frame.step, open=True
                )

    def _stage(
        self,
        track: str,
        began: int,
        end: int,
        stage: str,
        substage: str,
        step: int | None,
        **more: Any,
    ) -> Slice:
        name = f"{stage}/{substage}" if substage else stage
        args = ({} if step is None else {"step": step}) | more
        return Slice(track, self._at(began), self._at(end), name, args)

    def _group(self, group: str, events: list[Event]) -> Iterator[Slice | Instant]:
        track = f"collectives {group}" if group else "collectives of groups that are gone"
        entered: dict[int, Event] = {}
        for event in events:
            if event.kind is Kind.LEFT:
                began = event.began_ns or event.boot_ns
                enter = entered.pop(began, None)
                yield self._collective(track, began, event.boot_ns, enter)
            else:
                entered[event.boot_ns] = event
        now = self._record.inside.get(group)
        for began, enter in entered.items():
            if now is not None and abs(round(now.entered * 1e9) - began) < _SAME_NS:
                yield self._collective(track, began, self._end, enter, open=True)
            else:  # it has no end
                whole = self._collective(track, began, began, enter)
                yield Instant(track, whole.start, whole.name, whole.args)

    def _collective(
        self, track: str, began: int, end: int, enter: Event | None, **more: Any
    ) -> Slice:
        if enter is None:
            return Slice(track, self._at(began), self._at(end), "collective", more)
        name = f"wait for {enter.op}" if enter.kind is Kind.WAIT else enter.op
        args: dict[str, Any] = {"sequence": enter.sequence} | more
        if enter.peer is not None:
            args["peer"] = enter.peer
        return Slice(track, self._at(began), self._at(end), name, args)

    def _at(self, boot_ns: int) -> int:
        return (boot_ns + self._offset) // 1000
