"""Control groups of a process, version 1 or 2: memory, tasks, and what the OOM killer did.

See https://docs.kernel.org/admin-guide/cgroup-v2.html.  A limit is the tightest on the way up to
the root: Slurm, for one, sets it for the job and not for the step that the process is in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stagewatch.host.mounts import Mount, read_mounts
from stagewatch.host.process_files import read_bytes

_UNLIMITED = 1 << 62
"""Version 1 writes the highest multiple of a page, version 2 `max`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a group holds and may hold."""

    used: int
    limit: int | None
    """`None` for no limit on any level."""


@dataclass(frozen=True, slots=True)
class _Files:
    used: str
    limit: str


_FILES = {
    ("memory", 1): _Files("memory.usage_in_bytes", "memory.limit_in_bytes"),
    ("memory", 2): _Files("memory.current", "memory.max"),
    ("pids", 1): _Files("pids.current", "pids.max"),
    ("pids", 2): _Files("pids.current", "pids.max"),
}


class Cgroups:
    """The groups of this node's processes."""

    def __init__(self, proc: Path, mounts: Sequence[Mount] | None = None) -> None:
        self._proc = proc
        if mounts is None:
            mounts = read_mounts(proc / "self" / "mountinfo")
        self._roots: dict[tuple[str, int], Path] = {}
        for mount in mounts:
            for controller in ("memory", "pids"):
                point = Path(mount.point)
                if mount.fstype == "cgroup" and controller in point.name.split(","):
                    self._roots.setdefault((controller, 1), point)
                elif mount.fstype == "cgroup2":
                    self._roots.setdefault((controller, 2), point)

    def usage(self, pid: int, controller: str) -> Usage | None:
        """Of the group whose limit leaves the least room.  `None` where it cannot be read.

        `controller` is memory (bytes) or pids (tasks).
        """
        best: Usage | None = None
        for directory, version in self._path(pid, controller):
            files = _FILES[controller, version]
            used = _number(directory / files.used)
            if used is None:
                continue
            found = Usage(used, _number(directory / files.limit))
            if best is None or _room(found) < _room(best):
                best = found
        return best

    def oom_file(self, pid: int) -> Path | None:
        """Where the kernel counts the OOM kills of this process's group, and of those below it.

        To be kept: of a process that was killed the group can no longer be asked for.
        """
        for directory, version in self._path(pid, "memory"):
            return directory / ("memory.oom_control" if version == 1 else "memory.events")
        return None

    def _path(self, pid: int, controller: str) -> Iterator[tuple[Path, int]]:
        """The directories of the group and of all above it, with the version."""
        raw = read_bytes(f"{self._proc}/{pid}/cgroup") or b""
        groups: dict[int, str] = {}
        for line in raw.decode("utf-8", "replace").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controller in controllers.split(","):
                groups[1] = path
            elif number == "0" and not controllers:
                groups[2] = path
        for version in (1, 2):
            root = self._roots.get((controller, version))
            path = groups.get(version, "..")
            if root is not None and ".." not in path.split("/"):
                group = PurePosixPath(path.lstrip("/"))
                for part in (group, *group.parents):
                    yield root / part, version
                return


def oom_kills(file: Path) -> int | None:
    """Processes that the OOM killer has ended, out of an `oom_file`; `None` once it is gone."""
    for line in (read_bytes(str(file)) or b"").splitlines():
        key, _, value = line.partition(b" ")
        if key == b"oom_kill" and value.isdigit():
            return int(value)
    return None


def _number(path: Path) -> int | None:
    """A number, `None` for `max`, for one that means no limit, and for a missing file."""
    raw = (read_bytes(str(path)) or b"").strip()
    if not raw.isdigit() or int(raw) >= _UNLIMITED:
        return None
    return int(raw)


def _room(usage: Usage) -> float:
    return float("inf") if usage.limit is None else usage.limit - usage.used
