"""Faults that are being injected, from their marker files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.exposition import Samples, gauge
from stagewatch.faults.markers import read_markers

HOLD_SECONDS = 30.0
"""A fault is shown at least this long, so that one shorter than a scrape interval is not lost."""

ACTIVE = gauge(
    "fault_injection_active",
    f"1 while a fault is being injected, and for at least {HOLD_SECONDS:.0f} s from its start.",
    ("id", "fault_type", "target_worker", "expected_failure_stage", "scenario"),
)
START = gauge(
    "fault_injection_start_timestamp_seconds",
    "When the injection of an open fault began, as Unix time.",
    ("id",),
)
SKIPPED = gauge(
    "stagewatch_markers_skipped",
    "Marker files that the last look skipped, by reason.",
    ("reason",),
)


class FaultsCollector(Collector):
    """Open fault markers."""

    def __init__(self, directory: Path, *, wall: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._wall = wall

    def collect(self) -> Samples:
        markers, skipped = read_markers(self._directory)
        now = self._wall()
        out = Samples()
        for marker in markers:
            held = marker.start <= now < marker.start + HOLD_SECONDS
            if marker.active(now) or held:
                out.add(
                    ACTIVE,
                    1,
                    marker.id,
                    marker.fault_type,
                    marker.target_worker,
                    marker.expected_failure_stage,
                    marker.scenario,
                )
                out.add(START, marker.start, marker.id)
        for reason, count in skipped.items():
            out.add(SKIPPED, count, reason)
        return out


SPEC = Declaration(
    name="faults",
    help="faults being injected, from marker files",
    interval=2.0,
    options=NoOptions,
)
