"""What an agent's page of events may hold that is no page of events."""

from __future__ import annotations

import json
import resource
from typing import Any

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.trace.sources import read_page

PAGE: dict[str, Any] = {"node": "n1", "left_out": 0, "faults": [], "ranks": []}
FAULT = {"id": "cpu-1", "fault_type": "cpu_hog", "start": 100.0, "end": None}


def test_a_fault_of_the_page_is_read() -> None:
    node = read_page(json.dumps({**PAGE, "faults": [FAULT]}).encode())
    assert [(fault.id, fault.start, fault.end) for fault in node.faults] == [("cpu-1", 100.0, None)]


@pytest.mark.parametrize(
    "raw",
    [
        *(json.dumps({**PAGE, "faults": [FAULT | {key: 1e308}]}) for key in ("start", "end")),
        *(json.dumps({**PAGE, "left_out": wrong}) for wrong in (1e308, -1, True, "1")),
        *(json.dumps(PAGE).replace(": 0", f": {wrong}") for wrong in ("1e999", "NaN", "9" * 5000)),
        json.dumps({**PAGE, "ranks": [{"file": "", "boot_ns": 1e308, "wall_ns": 0, "life": "x"}]}),
        "[" * 100_000,
        "",
    ],
)
def test_numbers_out_of_range_and_broken_pages_are_refused(raw: str) -> None:
    with pytest.raises(SourceError, match="not one of this version"):
        read_page(raw.encode())


def test_a_page_of_empty_lists_takes_no_memory() -> None:
    raw = b"[" + b"[]," * 5_000_000 + b"[]]"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SourceError, match="not one of this version"):
        read_page(raw)
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert kibibytes < 100_000
