"""The small file system that checkpoints are written to.

The mount is in a mount namespace of the demo's processes, and gone with the last of them.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from stagewatch.core.errors import StagewatchError
from stagewatch.core.processes import Children
from stagewatch.demo.waiting import wait_for
from stagewatch_lab.rl import namespaces
from stagewatch_lab.rl.plan import MIB

SIZE = 160 * MIB
WAIT_SECONDS = 10.0
FILL_ATTEMPTS = 40


def missing() -> str:
    """What this machine lacks for a mount, empty if nothing."""
    return namespaces.missing("mount", "mount", "fallocate")


class MountNamespace:
    """A mount namespace; commands with the prefix `around` run in it."""

    def __init__(self, children: Children) -> None:
        command = ["unshare", "--mount", "--propagation", "private", "sleep", "infinity"]
        self._holder = children.start(command)
        own = _namespace(os.getpid())
        wait_for(
            lambda: _namespace(self._holder.pid) not in ("", own), "a mount namespace", WAIT_SECONDS
        )

    @property
    def around(self) -> tuple[str, ...]:
        """The prefix for a command that must see the mounts."""
        return ("nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--")

    def run(self, *command: str) -> str:
        """Run a command inside; its output.  Raises `StagewatchError` if it fails."""
        done = subprocess.run([*self.around, *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise StagewatchError(f"{command[0]}: {done.stderr.strip()}")
        return done.stdout


class SmallTmpfs:
    """A tmpfs at a directory of a mount namespace."""

    def __init__(self, namespace: MountNamespace, directory: Path) -> None:
        self._namespace = namespace
        self._directory = directory
        option = f"size={SIZE}"
        namespace.run("mount", "-t", "tmpfs", "-o", option, "stagewatch-demo", str(directory))

    def fill(self, leave: int) -> None:
        """Fill it until about so many bytes are free, while others may write."""
        for attempt in range(1, FILL_ATTEMPTS + 1):
            said = self._namespace.run("stat", "-f", "--format=%a %S", str(self._directory))
            blocks, size = said.split()
            free = int(blocks) * int(size) - leave
            command = ("fallocate", "--length", str(free), str(self._filler))
            try:
                self._namespace.run(*command)
                return
            except StagewatchError:
                if attempt == FILL_ATTEMPTS:
                    raise
                time.sleep(0.05)

    def empty(self) -> None:
        """Remove what `fill` has written."""
        self._namespace.run("rm", "-f", str(self._filler))

    @property
    def _filler(self) -> Path:
        return self._directory / "filler"


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return ""
