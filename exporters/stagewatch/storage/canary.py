"""Free space and a small write on configured mounts, each phase timed.

The helper process touches the mounts, see `canary_child`; this collector shows its results.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.children.collector import JobsCollector
from stagewatch.core.children.helper import Helper, Jobs, JobSpec, JobState
from stagewatch.core.collector import Declaration
from stagewatch.core.config import absolute_path, duration, listing, option, size
from stagewatch.core.exposition import Samples, gauge
from stagewatch.host.mounts import Mount, mount_of, read_mounts

_MOUNT = ("mount",)
_PHASE = ("mount", "phase")

INFO = gauge(
    "io_canary_info",
    "1 for every directory with a canary, with the mount that it is on now.",
    ("mount", "mount_point", "fstype", "source"),
)
SECONDS = gauge(
    "io_canary_seconds",
    "How long each phase of the last canary took: statvfs, open, write, fsync, read, unlink.",
    _PHASE,
)
SUCCESS = gauge(
    "io_canary_success",
    "1 if the last canary was written and read back intact, 0 if not or if it hangs; absent if "
    "none was written.",
    _MOUNT,
)
ERROR = gauge(
    "io_canary_error",
    "1 for the phase the last canary failed in, with the errno (or mismatch: other bytes came "
    "back).",
    (*_PHASE, "error"),
)
STUCK = gauge(
    "io_canary_stuck_seconds",
    "How long the canary has hung in this phase; from the deadline until a canary ends again.",
    _PHASE,
)
SKIPPED = gauge(
    "io_canary_skipped",
    "1 while no canary is written, by reason: below_floor if too little space is free.",
    ("mount", "reason"),
)
BANDWIDTH = gauge(
    "io_canary_bandwidth_bytes_per_second",
    "Throughput of the last larger file, by direction; writes are synced.",
    ("mount", "direction"),
)
SIZE = gauge("io_filesystem_size_bytes", "Size of the file system.", _MOUNT)
AVAILABLE = gauge("io_filesystem_available_bytes", "Free space that users may fill.", _MOUNT)
FILES = gauge("io_filesystem_files", "Inodes of the file system.", _MOUNT)
FILES_FREE = gauge("io_filesystem_files_free", "Free inodes.", _MOUNT)
READ_ONLY = gauge("io_filesystem_read_only", "1 if the file system is mounted read-only.", _MOUNT)

_SPACE = {
    "size": SIZE,
    "available": AVAILABLE,
    "files": FILES,
    "files_free": FILES_FREE,
    "read_only": READ_ONLY,
}


CANARY_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class CanaryOptions:
    """Options of the `canary` collector."""

    mounts: tuple[Path, ...] = option(
        (),
        "directories to write canaries in, preferably separate ones that only the agent may write "
        "to; the path is the label `mount`",
        parse=listing(absolute_path),
    )
    every: float = option(30.0, "time between two canaries", parse=duration)
    deadline: float = option(
        20.0, "timeout of a canary; its process is then killed", parse=duration
    )
    floor: int = option(
        1 << 30, "free space that a canary must leave; with less, none is written", parse=size
    )
    large_bytes: int = option(
        64 << 20, "size of the larger file that measures throughput; 0 for none", parse=size
    )
    large_every: float = option(600.0, "time between two larger files", parse=duration)


class CanaryCollector(JobsCollector):
    """Shows the results of the last canary on every mount."""

    items = "mount"

    def __init__(self, jobs: Jobs, *, mountinfo: Path) -> None:
        super().__init__(jobs)
        self._mountinfo = mountinfo
        self._mounts: list[Mount] = []

    def collect(self) -> Samples:
        """Use memory and the mount table; touch no mount."""
        self._mounts = read_mounts(self._mountinfo) if self._jobs.names else []
        return super().collect()

    def show(self, out: Samples, name: str, state: JobState) -> None:
        mount = mount_of(Path(name), self._mounts)
        if mount is not None:
            out.add(INFO, 1, name, mount.point, mount.fstype, mount.source)
        if state.hung is not None:
            out.add(STUCK, state.hung, name, state.hung_phase)
            out.add(SUCCESS, 0, name)
            return
        result = state.fresh
        if result is None:
            return
        for key, metric in _SPACE.items():
            found = result.get("space", {}).get(key)
            out.add(metric, None if found is None else int(found), name)
        for phase, seconds in result["seconds"].items():
            out.add(SECONDS, seconds, name, phase)
        error = result.get("error")
        if error is not None:
            out.add(ERROR, 1, name, error["phase"], error["error"])
        if "skipped" in result:
            out.add(SKIPPED, 1, name, result["skipped"])
        else:
            out.add(SUCCESS, int(error is None), name)
        for direction, rate in result.get("bandwidth", {}).items():
            out.add(BANDWIDTH, rate, name, direction)


def job(directory: Path, options: CanaryOptions) -> JobSpec:
    """The helper's task for one directory."""
    return JobSpec(
        "stagewatch.storage.canary_child:run",
        {
            "directory": str(directory),
            "bytes": CANARY_BYTES,
            "floor_bytes": options.floor,
            "large_bytes": options.large_bytes,
            "large_interval": options.large_every,
        },
        interval=options.every,
        deadline=options.deadline,
    )


def collector(options: CanaryOptions, helper: Helper, proc: Path) -> CanaryCollector:
    """Tests every mount in a child of the helper process."""
    jobs = {str(directory): job(directory, options) for directory in options.mounts}
    return CanaryCollector(helper.share("canary", jobs), mountinfo=proc / "self" / "mountinfo")


SPEC = Declaration(
    name="canary",
    help="free space and a small timed write on configured mounts",
    interval=5.0,
    options=CanaryOptions,
)
