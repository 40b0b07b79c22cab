"""Incidents that tell of one failure: of a node, and of the job that ran there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stagewatch.report.phases import Phases
from stagewatch.report.signs import JOIN_SECONDS, Incident


def absorbed(found: Sequence[Phases]) -> list[Phases]:
    """Without those that only tell of a job what another, with its node, tells too: their signs
    are added to that one."""
    kept = [each for each in found if each.incident.nodes]
    for each in found:
        if each.incident.nodes:
            continue
        at = next((at for at, other in enumerate(kept) if _tells(other, each)), None)
        if at is None:
            kept.append(each)
        else:
            signs = sorted(
                (*kept[at].incident.signs, *each.incident.signs), key=lambda sign: sign.start
            )
            kept[at] = replace(kept[at], incident=Incident(tuple(signs)))
    return kept


def _tells(one: Phases, other: Phases) -> bool:
    """Whether one knows of every interruption of a job that another does."""
    mine = [job for job in other.jobs if job.interrupted]
    return bool(mine) and all(
        any(
            job.job_id == known.job_id
            and abs((job.ended or other.began) - (known.ended or one.began)) < JOIN_SECONDS
            for known in one.jobs
            if known.interrupted
        )
        for job in mine
    )
