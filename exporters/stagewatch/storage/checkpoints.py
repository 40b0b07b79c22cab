"""Checkpoints in configured directories: shows a broken one before somebody needs it.

The helper process looks through the directories, see `checkpoint_child`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.children.collector import JobsCollector
from stagewatch.core.children.helper import Helper, JobSpec, JobState
from stagewatch.core.collector import Declaration
from stagewatch.core.config import duration, listing, option, text
from stagewatch.core.exposition import Samples, gauge

LOOK_SHARE = 0.5
"""A look ends by itself, incomplete, after this share of the deadline."""

MOST_ENTRIES = 20_000
"""The most entries of one look, in all directories of a pattern together."""

_JOB = ("directory", "job_id")
_DIRECTORY = ("directory",)

STEP = gauge("io_checkpoint_step", "Step of the newest checkpoint, by its name.", _JOB)
SIZE = gauge("io_checkpoint_size_bytes", "Size of the newest checkpoint.", _JOB)
PREVIOUS_SIZE = gauge(
    "io_checkpoint_previous_size_bytes",
    "Size of the checkpoint before the newest, even if it has since been removed or overwritten.",
    _JOB,
)
MODIFIED = gauge(
    "io_checkpoint_modified_timestamp_seconds",
    "Last change of the newest checkpoint, as Unix time by the file server's clock.",
    _JOB,
)
GROWING = gauge(
    "io_checkpoint_growing",
    "1 if the newest checkpoint changed between the last two looks; absent after the first.",
    _JOB,
)
TEMPORARY = gauge(
    "io_checkpoint_temporary_files",
    "Files and directories named *.tmp and the like, beside the checkpoints or in the newest.",
    _JOB,
)
TEMPORARY_MODIFIED = gauge(
    "io_checkpoint_temporary_oldest_timestamp_seconds",
    "Last change of the oldest of those, as Unix time.",
    _JOB,
)
LACKING = gauge(
    "io_checkpoint_lacking_files",
    "Files of the newest checkpoint that are missing, cut short or unreadable, once it no longer "
    "grows; 0 if it is whole, absent if it was not verified (option verify).",
    _JOB,
)
LACKS = gauge(
    "io_checkpoint_lacks_info",
    "1 with the first bad file and what is wrong with it; absent if there is none.",
    (*_JOB, "lacks"),
)
COMPLETE = gauge(
    "io_checkpoint_scan_complete",
    "1 if the last look covered the whole directory, 0 if it hangs, cannot be read, or has more "
    "entries or jobs than are looked at: then a missing checkpoint proves nothing.",
    _DIRECTORY,
)

_VALUES = {
    "step": STEP,
    "size": SIZE,
    "previous_size": PREVIOUS_SIZE,
    "modified": MODIFIED,
    "growing": GROWING,
    "temporary": TEMPORARY,
    "lacking": LACKING,
    "temporary_modified": TEMPORARY_MODIFIED,
}


def pattern(value: Any) -> str:
    """an absolute path in which {job} may stand for the name of a job and * for any name"""
    found = text(value)
    if not Path(found).is_absolute() or found.count("{job}") > 1 or ".." in Path(found).parts:
        raise ValueError
    return found


@dataclass(frozen=True, slots=True)
class CheckpointsOptions:
    """Options of the `checkpoints` collector."""

    directories: tuple[str, ...] = option(
        (),
        "directories with checkpoints, such as /scratch/{job}/checkpoints; {job}, or else the last "
        "*, is the label job_id",
        parse=listing(pattern),
    )
    every: float = option(30.0, "time between two looks", parse=duration)
    deadline: float = option(60.0, "timeout of a look; its process is then killed", parse=duration)
    verify: bool = option(
        False,
        "verify a checkpoint once it is written: shards by its metadata, headers, ends of files; "
        "enable it on one or two nodes per directory, since every node reads some KiB of every "
        "file",
    )
    max_jobs: int = option(64, "most jobs shown per pattern, those that changed last")
    max_age: float = option(
        2 * 86400.0, "leave out jobs whose newest checkpoint is older", parse=duration
    )


class CheckpointsCollector(JobsCollector):
    """Shows the result of the last look through every directory."""

    items = "directory"

    def show(self, out: Samples, directory: str, state: JobState) -> None:
        result = state.fresh
        hangs = state.hung is not None
        if result is not None or hangs:
            out.add(
                COMPLETE, int(result is not None and result["complete"] and not hangs), directory
            )
        if result is None:
            return
        for job, found in result["jobs"].items():
            for key, metric in _VALUES.items():
                out.add(metric, found[key], directory, job)
            if found["lacks"]:
                out.add(LACKS, 1, directory, job, found["lacks"])


def job(directory: str, options: CheckpointsOptions) -> JobSpec:
    """The helper's task for one pattern."""
    return JobSpec(
        "stagewatch.storage.checkpoint_child:run",
        {
            "pattern": directory,
            "max_entries": MOST_ENTRIES,
            "seconds": options.deadline * LOOK_SHARE,
            "max_jobs": options.max_jobs,
            "max_age": options.max_age,
            "verify": options.verify,
        },
        interval=options.every,
        deadline=options.deadline,
    )


def collector(options: CheckpointsOptions, helper: Helper) -> CheckpointsCollector:
    """Looks at every directory in a child of the helper process."""
    jobs = {directory: job(directory, options) for directory in options.directories}
    return CheckpointsCollector(helper.share("checkpoints", jobs))


SPEC = Declaration(
    name="checkpoints",
    help="the newest checkpoint of every job: size, growth, predecessor, left-over files",
    interval=5.0,
    options=CheckpointsOptions,
)
