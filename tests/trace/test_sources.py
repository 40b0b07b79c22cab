"""What an agent's page of events may hold that is no page of events."""

from __future__ import annotations

import json
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
    "changed",
    [
        {"left_out": float("inf")},
        {"left_out": float("nan")},
        {"node": ["n1"]},
        {"ranks": None},
        {"ranks": [{"file": "", "boot_ns": float("inf"), "wall_ns": 0, "life": "alive"}]},
        {"faults": [{**FAULT, "start": "yesterday"}]},
        {"faults": [{**FAULT, "end": 10**400}]},
        {"faults": [{**FAULT, "start": 1e308}]},
        {"faults": [{**FAULT, "start": -1.0}]},
        {"faults": [{**FAULT, "id": 7}]},
        {"faults": [{**FAULT, "color": "red"}]},
    ],
    ids=str,
)
def test_a_page_of_another_shape_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match="is not one of this version"):
        read_page(json.dumps({**PAGE, **changed}).encode())
