"""Memory, OOM kills and CPU limits of the control group (version 1 or 2) of a process.

See https://docs.kernel.org/admin-guide/cgroup-v2.html.  The tightest limit on the way up to the
root counts: Slurm sets the limit for the job, not for the step of the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stagewatch.host.mounts import Mount, read_mounts
from stagewatch.host.procfs import read_bytes

_UNLIMITED = 1 << 62
"""No limit: version 1 writes the highest multiple of a page, version 2 `max`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of a resource by a group, and its limit."""

    used: int
    limit: int | None
    """`None` if there is no limit on any level."""


_FILES = {
    1: ("memory.usage_in_bytes", "memory.limit_in_bytes"),
    2: ("memory.current", "memory.max"),
}
"""The files of a version that hold the use and the limit."""


class Cgroups:
    """The control groups of this node's processes."""

    def __init__(self, proc: Path, mounts: Sequence[Mount] | None = None) -> None:
        self._proc = proc
        if mounts is None:
            mounts = read_mounts(proc / "self" / "mountinfo")
        self._roots: dict[tuple[str, int], Path] = {}
        for mount in mounts:
            for controller in ("memory", "cpu"):
                point = Path(mount.point)
                if mount.fstype == "cgroup" and controller in point.name.split(","):
                    self._roots.setdefault((controller, 1), point)
                elif mount.fstype == "cgroup2":
                    self._roots.setdefault((controller, 2), point)

    def of(self, pid: int) -> bytes:
        """The groups of a process, as `/proc/<pid>/cgroup` names them; empty if it is gone."""
        return read_bytes(f"{self._proc}/{pid}/cgroup") or b""

    def memory(self, groups: bytes) -> Usage | None:
        """Memory of the group with the least room, in bytes; `None` if it cannot be read."""
        tightest: Usage | None = None
        for directory, version in self._path(groups, "memory"):
            used_file, limit_file = _FILES[version]
            used = _number(directory / used_file)
            if used is None:
                continue
            usage = Usage(used, _number(directory / limit_file))
            if tightest is None or _room(usage) < _room(tightest):
                tightest = usage
        return tightest

    def oom_file(self, groups: bytes) -> Path | None:
        """The file that counts the OOM kills of the group and of the groups below.

        Keep it: once the process has been killed, its group can no longer be looked up.
        """
        for directory, version in self._path(groups, "memory"):
            return directory / ("memory.oom_control" if version == 1 else "memory.events")
        return None

    def throttled_seconds(self, groups: bytes) -> float | None:
        """How long CPU limits have stopped the group so far: the largest of its own time and those
        of the groups above; `None` if no group has a limit.

        See https://docs.kernel.org/scheduler/sched-bwc.html.
        """
        stopped: list[float] = []
        for directory, version in self._path(groups, "cpu"):
            name, unit = (b"throttled_time", 1e-9) if version == 1 else (b"throttled_usec", 1e-6)
            values = _values(directory / "cpu.stat")
            if name in values and values.get(b"nr_periods"):  # which pass under a limit alone
                stopped.append(values[name] * unit)
        return max(stopped, default=None)

    def _path(self, groups: bytes, controller: str) -> Iterator[tuple[Path, int]]:
        """The directories of the group and of all groups above it, with the cgroup version."""
        paths: dict[int, str] = {}
        for line in groups.decode("utf-8", "replace").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controller in controllers.split(","):
                paths[1] = path
            elif number == "0" and not controllers:
                paths[2] = path
        for version in (1, 2):
            root = self._roots.get((controller, version))
            path = paths.get(version, "..")
            if root is not None and ".." not in path.split("/"):
                group = PurePosixPath(path.lstrip("/"))
                for part in (group, *group.parents):
                    yield root / part, version
                return


def oom_kills(file: Path) -> int | None:
    """The number of OOM kills in an `oom_file`; `None` once the file is gone."""
    return _values(file).get(b"oom_kill")


def _values(file: Path) -> dict[bytes, int]:
    """The numbers of a file by the names in front of them."""
    lines = (line.partition(b" ") for line in (read_bytes(str(file)) or b"").splitlines())
    return {name: int(value) for name, _, value in lines if value.isdigit()}


def _number(path: Path) -> int | None:
    """The number in a file; `None` for no limit and for a missing file."""
    raw = (read_bytes(str(path)) or b"").strip()
    if not raw.isdigit() or int(raw) >= _UNLIMITED:
        return None
    return int(raw)


def _room(usage: Usage) -> float:
    return float("inf") if usage.limit is None else usage.limit - usage.used
