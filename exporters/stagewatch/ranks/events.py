"""The latest events of a rank, from the ring in its record.

`parse_events` reads a copy, which may come from another node.  Other users write these bytes:
entries that no client can have written are left out, and nothing raises.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from stagewatch import record as layout
from stagewatch.core.words import printable
from stagewatch.record import WORD, unpad
from stagewatch.stages import STAGES


class Kind(Enum):
    """What happened."""

    ENTER = layout.E_ENTER
    """A thread entered a stage."""
    LEAVE = layout.E_LEAVE
    STEP = layout.E_STEP
    """A mark of progress came with a new step."""
    FAILURE = layout.E_FAILURE
    """An exception left a stage."""
    SCALAR = layout.E_SCALAR
    """A scalar has changed."""
    COLLECTIVE = layout.E_COLLECTIVE
    """The rank entered a collective, a send or a receive."""
    WAIT = layout.E_WAIT
    """The rank began to wait for a collective that it had entered before."""
    LEFT = layout.E_LEFT
    """The rank left a collective, or the wait for one."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event; fields that its kind does not have are empty or `None`."""

    kind: Kind
    boot_ns: int
    """The time of the event, by `CLOCK_BOOTTIME`."""
    lane: int | None = None
    """The thread, as its position in the record: 0 is the training thread."""
    stage: str = ""
    name: str = ""
    """The substage, the type of the exception, or the name of the scalar or the group."""
    step: int | None = None
    began_ns: int | None = None
    """When the stage or collective that ends here was entered."""
    op: str = ""
    peer: int | None = None
    """The global rank of the peer of a send or receive."""
    sequence: int | None = None
    """Number of entries into the group up to this one."""
    value: float | None = None
    """The value of the scalar; may be infinite or NaN."""


_KINDS = {kind.value: kind for kind in Kind}
_LANE_KINDS = (Kind.ENTER, Kind.LEAVE, Kind.STEP, Kind.FAILURE)
_ENTRY = struct.Struct("<qQqq")
_GROUPS = range(layout.COLLECTIVES_AT, layout.SCALARS_AT, layout.COLLECTIVE_SIZE)
_SCALARS = range(layout.SCALARS_AT, layout.LANES_AT, layout.SCALAR_SIZE)
_PLACE_MASK = (1 << layout.CALL_SHIFT - layout.PLACE_SHIFT) - 1
_MAX_PEER = 10_000_000


def parse_events(
    raw: bytes, until_ns: int, *, after_ns: int = 0, only: Kind | None = None
) -> list[Event]:
    """The events in a copy of a whole record, in the order of their times.

    Events after `until_ns`, the boot time of the copy, are left out, and so are those up to
    `after_ns`.  With `only`, all other kinds are left out.
    """
    if len(raw) < layout.EVENTS_END:
        return []
    entries = [
        (time, what, value)
        for time, what, value, again in _ENTRY.iter_unpack(
            raw[layout.EVENTS_AT : layout.EVENTS_END]
        )
        if after_ns < time <= until_ns
        and time == again
        and (only is None or what & 0xFF == only.value)
    ]
    entries.sort()
    reader = _Reader(raw)
    events = list(reader.read(entries))
    events.reverse()
    return events


class _Reader:
    """Reads entries, newest first, so that groups get the names of their time."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._texts: dict[tuple[int, int], str] = {}
        self._forgotten: set[int] = set()
        """Places in the table of groups that belonged to other groups before."""

    def read(self, entries: list[tuple[int, int, int]]) -> Iterator[Event]:
        for time, what, value in reversed(entries):
            kind = _KINDS.get(what & 0xFF)
            place = what >> layout.PLACE_SHIFT & _PLACE_MASK
            if what & 0xFF == layout.E_FORGET:
                self._forgotten.add(place)
            elif kind is None:
                continue
            elif kind in _LANE_KINDS:
                event = self._of_lane(kind, time, what, value)
                if event is not None:
                    yield event
            elif kind is Kind.SCALAR:
                if place in _SCALARS:
                    (number,) = struct.unpack("<d", struct.pack("<q", value))
                    name = self._text(place, layout.SCALAR_NAME_SIZE)
                    yield Event(kind, time, name=name, value=number)
            elif place * WORD - layout.GROUP_SIZE in _GROUPS:
                yield self._of_group(kind, time, what, value, place)

    def _of_lane(self, kind: Kind, time: int, what: int, value: int) -> Event | None:
        lane = what >> layout.LANE_SHIFT & 0xFF
        code = what >> layout.CODE_SHIFT & 0xFF
        number = what >> layout.NAME_SHIFT
        if lane >= layout.LANES or code >= len(STAGES) or number >= layout.NAMES:
            return None
        if kind is Kind.LEAVE and not 0 < abs(value) <= time:
            return None
        at = layout.NAMES_AT + number * layout.SUBSTAGE_SIZE
        leaves = kind is Kind.LEAVE
        return Event(
            kind,
            time,
            lane=lane,
            stage=STAGES[code],
            name=self._text(at, layout.SUBSTAGE_SIZE) if number else "",
            step=None if leaves or value < 0 else value,
            began_ns=abs(value) if leaves else None,
        )

    def _of_group(self, kind: Kind, time: int, what: int, value: int, place: int) -> Event:
        gone = place in self._forgotten
        name = "" if gone else self._text(place * WORD - layout.GROUP_SIZE, layout.GROUP_SIZE)
        if kind is Kind.LEFT:
            return Event(kind, time, name=name, began_ns=max(0, min(value, time)))
        call = what >> layout.CALL_SHIFT
        op = call % layout.END_KNOWN
        peer = call // layout.PEER - 1
        return Event(
            kind,
            time,
            name=name,
            op=layout.OPS[op] if op < len(layout.OPS) else layout.OPS[0],
            peer=peer if 0 <= peer <= _MAX_PEER else None,
            sequence=max(0, value),
        )

    def _text(self, at: int, size: int) -> str:
        text = self._texts.get((at, size))
        if text is None:
            text = self._texts[at, size] = printable(unpad(self._raw[at : at + size]))
        return text
