"""Kinds of lines in the logs of ranks, with the first and the last time of each.

The first cause and the last symptom are often in different files: the first times say where to
begin. Off unless configured; the helper process reads the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.children.collector import JobsCollector
from stagewatch.core.children.helper import Helper, Jobs, JobSpec, JobState
from stagewatch.core.collector import Declaration
from stagewatch.core.config import duration, listing, option, text
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.logs.child import PLACEHOLDERS
from stagewatch.logs.patterns import KNOWN, user_pattern

MOST_FILES = 256
"""The most files of one path that are read: those written last."""
MOST_BYTES = 4 << 20
"""The most bytes of all files of a path that one run reads."""
MOST_SECONDS = 0.5
"""The most CPU time of one run for a path."""

_FILE = ("job_id", "role", "rank", "file")
_LINE = ("pattern", *_FILE)
_PATH = ("path",)

MATCHES = counter(
    "log_matches_total",
    "Lines of a kind since the agent began to read; `file` is empty if the path names the rank.",
    _LINE,
)
FIRST = gauge(
    "log_first_match_timestamp_seconds",
    "Time of the first such line, as Unix time: the time in the line, else when the agent read it.",
    _LINE,
)
LAST = gauge("log_last_match_timestamp_seconds", "Time of the last such line.", _LINE)
SKIPPED = counter(
    "log_skipped_bytes_total",
    "Bytes skipped because too many came at once, or took too long to search: the agent does not "
    "see errors in them.",
    _PATH,
)
STUCK = gauge(
    "log_stuck_seconds",
    "How long reading the files has hung, from the deadline on.",
    _PATH,
)


def path_pattern(value: Any) -> str:
    """an absolute path with {job_id}, {role}, {rank} for those names and * for any"""
    found = text(value)
    known = all(found.count(f"{{{name}}}") <= 1 for name in PLACEHOLDERS)
    left = found
    for name in PLACEHOLDERS:
        left = left.replace(f"{{{name}}}", "")
    if not Path(found).is_absolute() or not known or "{" in left or ".." in Path(found).parts:
        raise ValueError
    return found


def line_pattern(value: Any) -> str:
    """NAME=REGEX, the name of lower-case letters, digits and _"""
    user_pattern(text(value))
    return str(value)


@dataclass(frozen=True, slots=True)
class LogsOptions:
    """Options of the `logs` collector."""

    files: tuple[str, ...] = option(
        (),
        "log files, such as /logs/{job_id}/{role}_{rank}.log; the names in braces become labels",
        parse=listing(path_pattern),
    )
    patterns: tuple[str, ...] = option(
        (),
        "patterns to count, such as oom=out of memory; they replace "
        + ", ".join(pattern.name for pattern in KNOWN),
        parse=listing(line_pattern),
    )
    every: float = option(2.0, "time between two readings", parse=duration)
    deadline: float = option(
        20.0, "timeout of a reading; its process is then killed", parse=duration
    )


class LogsCollector(JobsCollector):
    """Exports the counts of the helper."""

    items = "file"

    def __init__(self, jobs: Jobs, *, patterns: tuple[str, ...]) -> None:
        super().__init__(jobs)
        self._names = [pattern.partition("=")[0] for pattern in patterns] or [
            pattern.name for pattern in KNOWN
        ]

    def show(self, out: Samples, path: str, state: JobState) -> None:
        out.add(STUCK, state.hung, path)
        result = state.fresh
        if result is None:
            return
        for labels in result["files"]:
            for name in self._names:  # from 0, so that increase() counts the first line
                out.add(MATCHES, 0, name, *labels)
        for *labels, count, first, last in result["series"]:
            out.add(MATCHES, count, *labels)
            out.add(FIRST, first, *labels)
            out.add(LAST, last, *labels)
        out.add(SKIPPED, result["skipped"], path)


def job(path: str, options: LogsOptions) -> JobSpec:
    """The helper's task for one path."""
    return JobSpec(
        "stagewatch.logs.child:run",
        {
            "pattern": path,
            "patterns": list(options.patterns),
            "max_files": MOST_FILES,
            "max_bytes": MOST_BYTES,
            "max_seconds": MOST_SECONDS,
        },
        interval=options.every,
        deadline=options.deadline,
    )


def collector(options: LogsOptions, helper: Helper) -> LogsCollector:
    """Reads all files in a child of the helper process."""
    jobs = {path: job(path, options) for path in options.files}
    return LogsCollector(helper.share("logs", jobs), patterns=options.patterns)


SPEC = Declaration(
    name="logs",
    help="kinds of lines in configured log files, with the first and the last time of each",
    interval=2.0,
    options=LogsOptions,
)
