"""A recovery report as files: the page, the time lines, JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from stagewatch.report.figure_recovery import PHASES, timeline
from stagewatch.report.page import render
from stagewatch.report.periods import Period, iso, span
from stagewatch.report.phases import Phases
from stagewatch.report.recovery import ClusterRecovery, Recovery
from stagewatch.report.signs import union
from stagewatch.report.tables import csv_text, json_text

HEADER = (
    "cluster",
    "began",
    "nodes",
    "jobs",
    "signs",
    "detected_after_seconds",
    "detected_by",
    "out_of_service_after_seconds",
    "job_ended_after_seconds",
    "node_back_after_seconds",
    "job_resumed_after_seconds",
    "downtime_seconds",
    "restored",
    "throughput_before",
    "throughput_after",
    "throughput_change_ratio",
    "resolution_seconds",
)
VERDICTS = {
    "met": "downtime is within the error budget",
    "missed": "downtime exceeds the error budget",
    "undecided": "it hangs on time in which nothing was seen",
}
MAX_FIGURES = 30


@dataclass(frozen=True, slots=True)
class _PhaseRow:
    name: str
    colour: str
    time: float | None
    after: float | None
    since: float | None
    what: str


@dataclass(frozen=True, slots=True)
class _Day:
    day: str
    incidents: int
    downtime: float
    availability: float


def html(recovery: Recovery, title: str) -> str:
    """The page."""
    numbers: dict[int, str] = {}

    def drawn(phases: Phases) -> Any:
        name = numbers.setdefault(id(phases), f"timeline-{len(numbers) + 1}")
        return timeline(phases, name)

    return render(
        "recovery.html.j2",
        title=title,
        period=recovery.asked.period,
        slo=recovery.asked.slo,
        clusters=recovery.clusters,
        verdict_words=VERDICTS,
        agents=agents_success,
        kinds=kinds,
        since=_since,
        timeline=drawn,
        phase_rows=phase_rows,
        days=lambda cluster: list(_days(cluster, recovery.asked.period)),
    )


def figures(recovery: Recovery) -> dict[str, str]:
    """Each time line as a file's text, by name."""
    shown = [
        each
        for cluster in recovery.clusters
        for each in cluster.incidents
        if each.downtime or each.injected is not None
    ]
    return {
        name: timeline(each, name).standalone()
        for at, each in enumerate(shown[:MAX_FIGURES], 1)
        if (name := f"timeline-{at}")
    }


def json_of(recovery: Recovery) -> str:
    """The JSON file; times are Unix seconds, null where not seen."""
    return json_text(
        {
            "kind": "recovery",
            "period": recovery.asked.period,
            "slo": recovery.asked.slo,
            "clusters": [_cluster(cluster) for cluster in recovery.clusters],
        }
    )


def csv_of(recovery: Recovery) -> str:
    """The CSV file: a row for each incident."""
    rows = []
    for cluster in recovery.clusters:
        for each in cluster.incidents:
            first = next((job for job in each.jobs if job.interrupted), None)
            after = [
                None if when is None else round(when - each.began, 3)
                for when in (each.detected, each.drained, each.ended, each.node_back, each.resumed)
            ]
            rows.append(
                (
                    cluster.cluster,
                    iso(each.began),
                    " ".join(each.incident.nodes),
                    " ".join(job.job_id for job in each.jobs if job.interrupted),
                    kinds(each),
                    after[0],
                    each.detected_by,
                    *after[1:],
                    each.downtime.seconds if each.downtime else None,
                    each.restored,
                    first.throughput_before if first else None,
                    first.throughput_after if first else None,
                    first.throughput_change if first else None,
                    each.resolution,
                )
            )
    return csv_text(HEADER, rows)


def agents_success(cluster: ClusterRecovery) -> float | None:
    """Share of all scrapes of stagewatch's agents that succeeded."""
    mine = [each for each in cluster.scrapes if each.job.startswith("stagewatch")]
    attempted = sum(each.attempted for each in mine)
    return sum(each.succeeded for each in mine) / attempted if attempted else None


def kinds(phases: Phases) -> str:
    """The kinds of an incident's signs, with the first text of each."""
    words: dict[str, str] = {}
    for sign in phases.incident.signs:
        words[sign.kind] = words.get(sign.kind) or sign.text
    return "; ".join(
        f"{kind.replace('_', ' ')}: {text}" if text else kind for kind, text in words.items()
    )


def phase_rows(phases: Phases) -> list[_PhaseRow]:
    """The phases as they came, with the time since the one before; those not seen at the end."""
    found = [(getattr(phases, name), name, words, colour) for name, words, colour in PHASES]
    seen = sorted((each for each in found if each[0] is not None), key=lambda each: each[0])
    rows: list[_PhaseRow] = []
    for when, name, words, colour in seen:
        what = phases.detected_by if name == "detected" else ""
        since = when - (rows[-1].time or 0.0) if rows else None
        rows.append(_PhaseRow(words, colour, when, when - phases.began, since, what))
    missing = [each for each in found if each[0] is None]
    return rows + [
        _PhaseRow(words, colour, None, None, None, "") for _, _, words, colour in missing
    ]


def _since(phases: Phases, when: float | None) -> str:
    return span(None if when is None else when - phases.began)


def _days(cluster: ClusterRecovery, period: Period) -> Iterator[_Day]:
    """One row a day, for periods of more than two."""
    if period.seconds < 2 * 86400:
        return
    downtimes = union([each.downtime for each in cluster.incidents if each.downtime])
    start = period.start // 86400 * 86400
    while start < period.end:
        first, last = max(start, period.start, cluster.first_seen), min(start + 86400, period.end)
        if last > first:
            down = sum(max(0.0, min(d.end, last) - max(d.start, first)) for d in downtimes)
            yield _Day(
                datetime.fromtimestamp(start, timezone.utc).strftime("%Y-%m-%d"),
                sum(first <= each.began < last for each in cluster.incidents),
                down,
                1 - down / (last - first),
            )
        start += 86400


def _cluster(cluster: ClusterRecovery) -> dict[str, Any]:
    return {
        "cluster": cluster.cluster,
        "slo": {
            **{
                name: getattr(cluster.slo, name)
                for name in ("objective", "budget", "downtime", "unseen", "availability")
            },
            "left": cluster.slo.left,
            "verdict": cluster.slo.verdict,
        },
        "incidents": [
            {
                "began": each.began,
                "nodes": each.incident.nodes,
                "open": each.incident.open,
                "signs": each.incident.signs,
                "injected": each.injected,
                "detected": each.detected,
                "detected_by": each.detected_by,
                "out_of_service": each.drained,
                "job_ended": each.ended,
                "node_back": each.node_back,
                "job_resumed": each.resumed,
                "downtime": each.downtime,
                "restored": each.restored,
                "jobs": each.jobs,
                "resolution_seconds": each.resolution,
            }
            for each in cluster.incidents
        ],
        "incidents_left_out": cluster.left_out,
        "scrapes": [
            {"job": s.job, "targets": s.targets, "success": s.success, "coverage": s.coverage}
            for s in cluster.scrapes
        ],
        "jobs_at_once": cluster.jobs_seen or None,
        "nodes": cluster.nodes,
        "node_hours_out_of_service": cluster.node_hours_out,
        "wasted_gpu_hours": {
            "stalled": cluster.stalled_gpu_hours,
            "interrupted": cluster.interrupted_gpu_hours,
            "together": cluster.wasted_gpu_hours,
        },
        "runs_ended": cluster.runs_ended,
        "requeues": cluster.requeues,
        "first_seen": cluster.first_seen,
        "resolution_seconds": cluster.resolution,
    }
