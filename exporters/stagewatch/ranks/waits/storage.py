"""Calls to a file system: of which file, and on which mount."""

from __future__ import annotations

from pathlib import Path

from stagewatch.core.words import printable
from stagewatch.host.mounts import mount_of, parse_mounts
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.waits.model import Kind
from stagewatch.ranks.waits.other_end import OtherEnd
from stagewatch.ranks.waits.threads import read

MAX_TABLE_BYTES = 1 << 20
MAX_NAME = 120


def other_end(proc: Procfs, pid: int, link: str, call: str, channel: str) -> OtherEnd:
    """The wait of a process for a file system.  No process of this node is awaited, unless one
    serves the mount."""
    if not link.startswith("/"):
        where = f" (in the kernel's {channel})" if channel else ""
        return OtherEnd(Kind.STORAGE, f"a file system, in {call}{where}")
    path = f"{proc.root}/{pid}/mountinfo"
    table = proc.patiently(pid, lambda: read(path, MAX_TABLE_BYTES)) or b""
    mount = mount_of(Path(link), parse_mounts(table.decode("utf-8", "replace")))
    words = f"{call} of {printable(link[-MAX_NAME:])}"
    if mount is not None:
        words += printable(f", on {mount.point} ({mount.fstype}, {mount.source})", MAX_NAME)
    return OtherEnd(Kind.STORAGE, words)
