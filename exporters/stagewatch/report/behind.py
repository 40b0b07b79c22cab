"""The incidents behind the costliest causes of a goodput report."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.causes import Cause
from stagewatch.report.history import History, Intervals
from stagewatch.report.incidents import Incident, Sign, find_signs, incidents_of
from stagewatch.report.ledger import LOST, Ledger

SIGNS = {
    "stalled": ("stall", "hung", "rank_gone"),
    LOST: ("restart", "rank_gone", "down"),
    "waiting": ("restart",),
    "init": ("restart",),
    "drained": ("drain", "fail"),
    "down": ("down", "silent"),
}
"""Kinds of signs (`Sign.kind`) that make an incident one behind a cause, by the cause's state."""

LOOK = 60.0
"""Seconds for which a sample is in force, at least."""

COLUMNS = 9000
"""A month every five minutes, within which signs of one node or job are one incident."""

MAX_INCIDENTS = 200


@dataclass(frozen=True, slots=True)
class Behind:
    """An incident of a cluster, by its number on the page."""

    number: int
    cluster: str
    incident: Incident


def find_behind(api: PrometheusApi, ledger: Ledger, causes: Sequence[Cause]) -> list[Behind]:
    """The incidents of the period behind any of some causes, by their start; the longest ones."""
    named = [cause for cause in causes if cause.state in SIGNS]
    found: list[tuple[str, Incident]] = []
    for cluster in sorted({cluster for cause in named for cluster, _ in cause.jobs | cause.nodes}):
        rules = max(ledger.intervals[cluster].values())
        look = max(LOOK, rules)
        history = History(
            api,
            ledger.period,
            intervals=Intervals(scrape=look, slurm=look, rules=rules),
            columns=COLUMNS,
        )
        found += [
            (cluster, incident)
            for incident in incidents_of(find_signs(history, cluster))
            if any(_belongs(cluster, incident, cause) for cause in named)
        ]
    longest = sorted(found, key=lambda each: each[1].start - each[1].end)[:MAX_INCIDENTS]
    longest.sort(key=lambda each: (each[1].start, each[0]))
    return [Behind(number, *each) for number, each in enumerate(longest, 1)]


def behind(cause: Cause, incidents: Collection[Behind]) -> list[Behind]:
    """Those of the incidents that belong to a cause."""
    return [each for each in incidents if _belongs(each.cluster, each.incident, cause)]


def _belongs(cluster: str, incident: Incident, cause: Cause) -> bool:
    return any(_accuses(cluster, sign, cause) for sign in incident.signs)


def _accuses(cluster: str, sign: Sign, cause: Cause) -> bool:
    if sign.kind not in SIGNS.get(cause.state, ()):
        return False
    return (cluster, sign.job_id) in cause.jobs or (cluster, sign.node) in cause.nodes
