"""A memory cgroup (version 1 or 2) for one worker."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from stagewatch.host.cgroups import Cgroups

# Ends with its input, so also when this process is killed, and then removes the directory.
_JANITOR = (
    'read _; n=0; while ! rmdir "$0" 2>/dev/null && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.1; done'
)


class MemoryLimit:
    """A group with a limit in bytes and no swap; close it after its last process."""

    def __init__(self, name: str, limit: int) -> None:
        parent = _parent()
        if parent is None:
            raise OSError("no memory cgroup")
        self.directory = parent / name
        self.directory.mkdir()
        for setting, value in (
            ("memory.max", limit),
            ("memory.swap.max", 0),
            ("memory.limit_in_bytes", limit),
            ("memory.swappiness", 0),
        ):
            with contextlib.suppress(OSError):
                if (self.directory / setting).exists():
                    (self.directory / setting).write_text(f"{value}\n")
        self._janitor = subprocess.Popen(
            ["sh", "-c", _JANITOR, self.directory], stdin=subprocess.PIPE, start_new_session=True
        )

    def close(self) -> None:
        """Remove the group."""
        self._janitor.communicate()

    @property
    def wrapper(self) -> tuple[str, ...]:
        """The prefix for a command that must run in the group."""
        return ("sh", "-c", f'echo $$ > "{self.directory}/cgroup.procs" && exec "$@"', "sh")


def missing() -> str:
    """What this machine lacks for it; empty if nothing."""
    parent = _parent()
    if parent is None:
        return "needs a mounted memory cgroup controller"
    if not os.access(parent, os.W_OK):
        return f"needs to write to {parent}, so root or a delegated cgroup"
    children = parent / "cgroup.subtree_control"
    if children.exists() and "memory" not in children.read_text().split():
        return f"needs the memory controller in {children}"
    return ""


def _parent() -> Path | None:
    groups = Cgroups(Path("/proc"))
    file = groups.oom_file(groups.of(os.getpid()))
    return None if file is None else file.parent
