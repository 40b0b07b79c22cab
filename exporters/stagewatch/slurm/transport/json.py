"""Slurm's JSON, of the commands' --json and of slurmrestd alike: documents and their lists.

JSON says which GPUs each job has, and no reason is cut short; it costs several times the time and
memory of text, and what an installed version offers only in text is read in text.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import TypeVar

from stagewatch.core.commands import TooMuch
from stagewatch.core.errors import SourceError
from stagewatch.slurm import model
from stagewatch.slurm.model import Object, Records
from stagewatch.slurm.transport import diagnostics
from stagewatch.slurm.transport.text import SlurmCli

log = logging.getLogger(__name__)

T = TypeVar("T")


def document(output: bytes, what: str) -> Object:
    """The JSON object in an answer.

    Raises `SourceError` where it is none, or where it says of itself that it failed.
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


_SCONTROL_HAS_JSON = (23, 2)


class SlurmJsonCli(SlurmCli):
    """Asks the commands for the queue, the nodes and the diagnostics in JSON, else in text."""

    _version: tuple[int, int] | None = None
    _too_much = False

    def jobs(self, timeout: float) -> Records[model.Job]:
        """The queue: 1 request to the controller; in text once its JSON has been too much."""
        if not self._too_much:
            try:
                return jobs(self._ask("jobs", timeout, "squeue", "--json", "--all", "--states=all"))
            except TooMuch as error:
                log.warning(
                    "%s: the queue is read in text from now on, without the indices of GPUs", error
                )
                self._too_much = True
        return super().jobs(timeout)

    def nodes(self, timeout: float) -> Records[model.Node]:
        """The nodes: 2 requests to the controller."""
        if self._installed(timeout) < _SCONTROL_HAS_JSON:
            return nodes(self._ask("nodes", timeout, "sinfo", "--json", "--all"))
        arguments = ("--json", "--details", "--all", "show", "nodes")
        return nodes(self._ask("nodes", timeout, "scontrol", *arguments))

    def diagnostics(self, timeout: float) -> model.Diagnostics:
        """The controller's statistics: 1 request."""
        if self._installed(timeout) < _SCONTROL_HAS_JSON:
            return super().diagnostics(timeout)
        return diagnostics.parse_json(self._ask("diagnostics", timeout, "sdiag", "--json"))

    def _ask(self, source: str, timeout: float, command: str, *arguments: str) -> Object:
        return document(self._run(source, timeout, command, *arguments), f"{command} --json")

    def _installed(self, timeout: float) -> tuple[int, int]:
        """Major and minor version of the commands, asked once; the controller is not."""
        if self._version is None:
            output = self._run("version", timeout, "squeue", "--version")
            match = re.search(rb"(\d+)\.(\d+)", output)
            self._version = (int(match[1]), int(match[2])) if match else (0, 0)
        return self._version
