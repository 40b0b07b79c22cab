"""The JSON of slurmrestd: documents and the lists in them.

JSON tells which GPUs a job has.  It costs several times the time and memory of text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from stagewatch.core.errors import SourceError
from stagewatch.slurm import model
from stagewatch.slurm.model import Object, Records

T = TypeVar("T")


def document(output: bytes, what: str) -> Object:
    """The JSON object in an answer.

    Raises `SourceError` if there is none, or if the object reports an error.
    """
    try:
        answer = json.loads(output.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{what}: not JSON, or cut short: {output[:60]!r}") from error
    if not isinstance(answer, dict):
        raise SourceError(f"{what}: not a JSON object: {output[:60]!r}")
    for refusal in model.objects(answer.get("errors")):
        complaint = model.text(refusal.get("description")) or model.text(refusal.get("error"))
        raise SourceError(f"{what}: {(complaint or 'an unknown error')[:200]}")
    return answer


def jobs(answer: Object) -> Records[model.Job]:
    """The queue."""
    return _records(answer, "jobs", model.read_job)


def nodes(answer: Object) -> Records[model.Node]:
    """The nodes."""
    return _records(answer, "nodes", model.read_node)


def ended_jobs(answer: Object) -> Records[model.EndedJob]:
    """Runs from slurmdbd that have ended."""
    return _records(answer, "jobs", model.read_ended)


def ping(answer: Object) -> tuple[model.Controller, ...]:
    """The controllers, in the shapes of `ping`, `pinged` and `responding`."""
    controllers = []
    for position, record in enumerate(model.objects(answer.get("pings"))):
        up = record.get("responding")
        if not isinstance(up, bool):
            up = (
                model.text(record.get("ping")) or model.text(record.get("pinged"))
            ).upper() == "UP"
        primary = record.get("primary", position == 0)
        role = "primary" if primary else f"backup{position if position > 1 else ''}"
        host = model.text(record.get("hostname")) or "unknown"
        controllers.append(model.Controller(host, model.text(record.get("mode")) or role, up=up))
    if not controllers:
        raise SourceError("ping: no controller in the answer")
    return tuple(controllers)


def _records(answer: Object, what: str, read: Callable[[Object], T | None]) -> Records[T]:
    listed = answer.get(what)
    if not isinstance(listed, list):
        raise SourceError(f"there is no list of {what} in the answer")
    good = list(model.objects(listed))
    records = model.read_all(good, read, len(listed) - len(good))
    if records.malformed == len(listed) > 0:
        raise SourceError(f"{what} are of an unknown shape: {str(listed[0])[:80]}")
    return records
