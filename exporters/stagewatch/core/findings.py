"""What is wrong with jobs, handed from the collector that judges them to the status page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

FRESH_SECONDS = 10.0
"""How old a judgement may be; one of a collector that is stuck must not stay on the page."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One role of a job that has hung, has stopped or has lost a rank."""

    job_id: str
    role: str
    headline: str
    """The verdict in one sentence for people."""
    sentence: str
    """The verdict with its evidence, as `stagewatch inspect` has it."""
    culprits: tuple[tuple[str, str, str], ...] = ()
    """The ranks at fault by job, role and rank, as far as anybody can be named."""
    links: tuple[tuple[str, str], ...] = ()
    """Name and URL of the status pages of the culprits' nodes."""
    picture: Callable[[], str] | None = field(default=None, compare=False)
    """Draws who waits for whom, as an SVG document."""


class Findings:
    """The latest judgement, which counts for so many seconds."""

    def __init__(self, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._fresh_seconds = fresh_seconds
        self._latest: tuple[float, Sequence[Finding]] | None = None

    def replace(self, findings: Sequence[Finding]) -> None:
        """Hold a new judgement; an empty one says that nothing is wrong."""
        self._latest = time.monotonic(), tuple(findings)

    def latest(self) -> Sequence[Finding] | None:
        """The findings of the last few seconds; None where nobody has judged since."""
        latest = self._latest
        if latest is None or time.monotonic() - latest[0] > self._fresh_seconds:
            return None
        return latest[1]
