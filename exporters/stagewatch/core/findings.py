"""Findings about jobs, passed from the collector that judges them to the status page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

FRESH_SECONDS = 10.0
"""Largest age of a judgement; that of a stuck collector must not stay on the page."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One role of a job that hangs, has stopped or has lost a rank."""

    job_id: str
    role: str
    headline: str
    """The verdict in one sentence for people."""
    sentence: str
    """The verdict with its evidence, as `stagewatch inspect` has it."""
    culprits: tuple[tuple[str, str, str], ...] = ()
    """The ranks at fault by job, role and rank, as far as known."""
    links: tuple[tuple[str, str], ...] = ()
    """Name and URL of the status pages of the culprits' nodes."""
    picture: Callable[[], str] | None = field(default=None, compare=False)
    """Draws who waits for whom, as an SVG document."""


class Findings:
    """The latest judgement, valid for some seconds."""

    def __init__(self, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._fresh_seconds = fresh_seconds
        self._latest: tuple[float, Sequence[Finding]] | None = None

    def replace(self, findings: Sequence[Finding]) -> None:
        """Keep a new judgement; an empty one says that nothing is wrong."""
        self._latest = time.monotonic(), tuple(findings)

    def latest(self) -> Sequence[Finding] | None:
        """The findings of the last few seconds; None if there is no judgement."""
        latest = self._latest
        if latest is None or time.monotonic() - latest[0] > self._fresh_seconds:
            return None
        return latest[1]
