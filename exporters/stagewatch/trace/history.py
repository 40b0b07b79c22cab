"""The data that a Prometheus adds to the ranks' own events: agents, wait classes, verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from urllib.parse import urlsplit

from stagewatch.core.errors import StagewatchError
from stagewatch.prometheus.api import PrometheusApi, Track
from stagewatch.prometheus.selectors import select
from stagewatch.report.history import runs
from stagewatch.trace.tracks import Slice

STEP_SECONDS = 5.0
MAX_STEPS = 2000

RankKey = tuple[str, str]
"""Role and number."""


def agents_of(api: PrometheusApi, job_id: str) -> list[str]:
    """The URLs of the agents with a rank of a job, from the server's targets.

    Raises `StagewatchError` if there is none.
    """
    wanted = {
        (up.labels.get("job", ""), up.labels.get("instance", ""))
        for up in api.query(select("rl_rank_up", job_id=job_id))
    }
    if not wanted:
        jobs = sorted({up.labels["job_id"] for up in api.query("group by (job_id) (rl_rank_up)")})
        there = f"; there are {', '.join(jobs[:20])}" if jobs else ""
        raise StagewatchError(f"no agent that this Prometheus scrapes shows job {job_id}{there}")
    urls = {
        f"{parts.scheme}://{parts.netloc}"
        for labels, url in api.targets()
        if (labels.get("job", ""), labels.get("instance", "")) in wanted
        and (parts := urlsplit(url)).scheme in ("http", "https")
    }
    if not urls:
        raise StagewatchError(
            f"this server scrapes none of the {len(wanted)} agents of job {job_id} itself: name "
            "them by --agent"
        )
    return sorted(urls)


def wait_classes(
    api: PrometheusApi, job_id: str, start: float, end: float
) -> Iterator[tuple[RankKey, Slice]]:
    """The wait classes of the ranks from `start` to `end` (Unix seconds)."""
    expression = f"{select('rl_rank_wait_class', job_id=job_id)} == 1"
    for track, began, ended in _times(api, expression, start, end):
        key = track.labels.get("role", ""), track.labels.get("rank", "")
        yield key, Slice("wait class", began, ended, track.labels.get("class", "unknown"))


def verdicts(api: PrometheusApi, job_id: str, start: float, end: float) -> Iterator[Slice]:
    """When the job was suspected to be stalled, and which ranks were named."""
    active = f"{select('job:rl_stall:active', job_id=job_id)} == 1"
    for track, began, ended in _times(api, active, start, end):
        role = track.labels.get("role", "")
        yield Slice(f"{role} suspected", began, ended, "suspected to be stalled", track.labels)
    culprit = select("job:rl_stall:culprit", job_id=job_id)
    for track, began, ended in _times(api, culprit, start, end):
        who = f"{track.labels.get('role', '')}/{track.labels.get('rank', '')}"
        yield Slice(f"culprit {who}", began, ended, track.labels.get("evidence", ""), track.labels)


def _times(
    api: PrometheusApi, expression: str, start: float, end: float
) -> Iterator[tuple[Track, int, int]]:
    """When series existed, in Unix microseconds; includes all that exist now."""
    step = max(STEP_SECONDS, (end - start) / MAX_STEPS)
    looks = math.ceil((end - start) / step)
    for track in api.query_range(expression, end - looks * step, end, step):
        for first, last in runs([time for time, _ in track.samples], 1.5 * step):
            yield track, int(first * 1e6), int((last + step) * 1e6)
