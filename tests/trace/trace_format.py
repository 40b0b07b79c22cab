"""The rules of the Trace Event Format, from its document, as a check of a whole file.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event
Format"), sections "JSON Object Format", "Complete Events", "Instant Events", "Counter Events" and
"Metadata Events".  That slices of one thread must nest is also what Perfetto asks for:
https://perfetto.dev/docs/faq ("Why are overlapping events in JSON traces not displayed
correctly?").
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, NoReturn

METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}

Event = dict[str, Any]


def checked(text: str) -> list[Event]:
    """The events of a trace that keeps the rules; an `AssertionError` names what does not."""
    trace = json.loads(text, parse_constant=_no_number)
    assert isinstance(trace["traceEvents"], list)
    assert trace.get("displayTimeUnit", "ms") in ("ms", "ns")
    events: list[Event] = trace["traceEvents"]
    slices = defaultdict(list)
    for event in events:
        _check(event)
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for track, times in slices.items():
        _check_nesting(track, times)
    return events


def _check(event: Event) -> None:
    assert isinstance(event["name"], str), event
    assert event["name"], event
    assert isinstance(event["pid"], int), event
    assert isinstance(event["tid"], int), event
    assert isinstance(event.get("args", {}), dict), event
    phase = event["ph"]
    if phase == "M":
        key, kind = METADATA[event["name"]]
        assert isinstance(event["args"][key], kind), event
        return
    assert isinstance(event["ts"], (int, float)), event
    assert event["ts"] >= 0, event
    if phase == "X":
        assert event["dur"] >= 0, event
    elif phase == "i":
        assert event.get("s", "t") in ("g", "p", "t"), event
    elif phase == "C":
        assert event["args"], event
        assert all(type(value) in (int, float) for value in event["args"].values()), event
    else:
        raise AssertionError(f"{phase!r} is no phase of this format that we write: {event}")


def _check_nesting(track: object, times: list[tuple[float, float]]) -> None:
    open_until: list[float] = []
    for start, end in sorted(times, key=lambda one: (one[0], -one[1])):
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert not open_until or end <= open_until[-1], f"slices of {track} overlap at {start}"
        open_until.append(end)


def _no_number(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON")


def names_of(events: list[Event], kind: str) -> dict[Any, str]:
    """Names of processes by `pid`, or of threads by `pid` and `tid`."""
    return {
        event["pid"] if kind == "process_name" else (event["pid"], event["tid"]): event["args"][
            "name"
        ]
        for event in events
        if event["ph"] == "M" and event["name"] == kind
    }
