"""A memory cgroup of a test's own, of whichever version this machine has."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stagewatch.sources.cgroups import Cgroups

# Ends with its input, so also when this process is killed, and then removes the directory.
JANITOR = (
    'read _; n=0; while ! rmdir "$0" 2>/dev/null && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.1; done'
)


class MemoryCgroup:
    """A directory that processes can be put into."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command for it to run in the group."""
        script = f'echo $$ > "{self.directory}/cgroup.procs" && exec "$@"'
        return ("sh", "-c", script, "sh")


def missing() -> str:
    """What this machine lacks for it, empty if nothing."""
    parent = _parent()
    if parent is None:
        return "needs a mounted memory cgroup controller"
    if not os.access(parent, os.W_OK):
        return f"needs to write to {parent}, so root or a delegated cgroup"
    children = parent / "cgroup.subtree_control"
    if children.exists() and "memory" not in children.read_text().split():
        return f"needs the memory controller in {children}"
    return ""


@contextmanager
def memory_cgroup(limit: int) -> Iterator[MemoryCgroup]:
    """A group that may hold so many bytes, and no swap."""
    parent = _parent()
    assert parent is not None
    directory = parent / f"stagewatch-test-{os.getpid()}"
    directory.mkdir()
    with subprocess.Popen(["sh", "-c", JANITOR, directory], stdin=subprocess.PIPE):
        for name, value in (
            ("memory.max", limit),
            ("memory.swap.max", 0),
            ("memory.limit_in_bytes", limit),
            ("memory.swappiness", 0),
        ):
            with contextlib.suppress(OSError):
                if (directory / name).exists():
                    (directory / name).write_text(f"{value}\n")
        yield MemoryCgroup(directory)


def _parent() -> Path | None:
    """The group this process is in, or the root where that one may not have children."""
    file = Cgroups(Path("/proc")).oom_file(os.getpid())
    return None if file is None else file.parent
