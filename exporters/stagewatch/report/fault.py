"""The fault of an experiment, from the marker that the agents exported."""

from __future__ import annotations

import time
from dataclasses import dataclass

from stagewatch.core.errors import StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.firing import usual_gap
from stagewatch.report.history import quoted

MAX_OPEN_SECONDS = 86400.0
"""A marker that stays open for longer is taken to be open still."""

_GAP = 300.0


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault.  Times are Unix seconds; no `end`: its marker was still open."""

    id: str
    fault_type: str
    target: str
    expected_stage: str
    scenario: str
    cluster: str
    start: float
    end: float | None


def find_fault(api: PrometheusApi, id: str, days: float) -> Fault:
    """The fault with a marker's id, of the last so many days.

    `end` is when its marker was last seen open, which is at least 30 s after the start.
    Raises `StagewatchError` with the ids that there are.
    """
    window = f"[{max(1, round(days * 24))}h]"
    chosen = f"{{id={quoted(id)}}}"
    starts = api.query(f"max_over_time(fault_injection_start_timestamp_seconds{chosen}{window})")
    markers = api.query(f"max_over_time(fault_injection_active{chosen}{window})")
    if not starts or not markers:
        found = api.query(f"count by (id) (max_over_time(fault_injection_active{window}))")
        ids = sorted(each.labels.get("id", "") for each in found)
        known = ", ".join(ids[:20]) if ids else "none at all"
        raise StagewatchError(
            f"no fault {id!r} was marked in the last {days:g} days (--days); there is: {known}"
        )
    labels = markers[0].labels
    start = max(each.value for each in starts)
    return Fault(
        id=id,
        fault_type=labels.get("fault_type", ""),
        target=labels.get("target_worker", ""),
        expected_stage=labels.get("expected_failure_stage", ""),
        scenario=labels.get("scenario", ""),
        cluster=labels.get("cluster", ""),
        start=start,
        end=_last_open(api, chosen, start),
    )


def _last_open(api: PrometheusApi, chosen: str, start: float) -> float | None:
    now = time.time()
    seen, gap = start, 30.0
    at = start
    while at < min(now, start + MAX_OPEN_SECONDS):
        until = min(at + 3600, now)
        tracks = api.samples(f"fault_injection_active{chosen}", at, until)
        times = [when for track in tracks for when, _ in track.samples]
        if times:
            seen, gap = max(seen, *times), 3 * usual_gap(sorted(set(times)))
        if not times and at - seen > _GAP:
            break
        at = until
    return None if min(now, start + MAX_OPEN_SECONDS) - seen < gap else seen
