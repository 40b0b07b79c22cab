"""What an agent's page of events may hold that is no page of events."""

from __future__ import annotations

import json
from typing import Any

from stagewatch.trace.sources import read_page

PAGE: dict[str, Any] = {"node": "n1", "left_out": 0, "faults": [], "ranks": []}
FAULT = {"id": "cpu-1", "fault_type": "cpu_hog", "start": 100.0, "end": None}


def test_a_fault_of_the_page_is_read() -> None:
    node = read_page(json.dumps({**PAGE, "faults": [FAULT]}).encode())
    assert [(fault.id, fault.start, fault.end) for fault in node.faults] == [("cpu-1", 100.0, None)]
