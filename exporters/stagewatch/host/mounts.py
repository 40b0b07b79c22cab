r"""The mount table, `/proc/<pid>/mountinfo`; see proc_pid_mountinfo(5).

The kernel writes the table from memory: reading it touches no mount and cannot hang.  Blanks, tabs,
newlines and backslashes in names are written \040 etc.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the table."""

    point: str
    fstype: str
    source: str
    device: str
    """`major:minor` of the file system."""


def read_mounts(path: Path) -> list[Mount]:
    """The mounts in the order of the table, later ones last; empty where it cannot be read."""
    try:
        return parse_mounts(path.read_bytes().decode("utf-8", "replace"))
    except OSError:
        return []


def parse_mounts(text: str) -> list[Mount]:
    """The lines of a table that have the fields of a mount."""
    mounts = []
    for line in text.split("\n"):
        left, dash, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if dash and len(before) > 5 and len(after) > 1:
            mounts.append(Mount(unescape(before[4]), after[0], unescape(after[1]), before[2]))
    return mounts


def mount_of(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """The mount of a path, by its name alone: symbolic links are not followed."""
    text = str(path)
    best: Mount | None = None
    for mount in mounts:
        inside = mount.point == "/" or (text + "/").startswith(mount.point + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount  # of two on one point, the later one has the path
    return best


def memory_mounts(table: Path = Path("/proc/self/mountinfo")) -> frozenset[int]:
    """The ids of the mounts in memory: neither a user's process nor a server answers for them."""
    try:
        lines = table.read_text("utf-8", "replace").split("\n")
    except OSError:
        return frozenset()
    return frozenset(int(line.split(" ", 1)[0]) for line in lines if " - tmpfs " in line)


def pin(path: Path, *flags: int, dir_fd: int | None = None) -> int:
    """A descriptor for a file, opened without asking its file system.

    See `O_PATH` in open(2); a symbolic link is not followed, a mount is.
    """
    wanted = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    for flag in flags:
        wanted |= flag
    return os.open(path, wanted, dir_fd=dir_fd)


def mount_id(descriptor: int) -> int:
    """The mount id of a descriptor, also from memory; see proc_pid_fdinfo(5)."""
    file = os.open(f"/proc/self/fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:  # not by pathlib: this is asked of thousands of files
        return int(os.read(file, 512).partition(b"mnt_id:")[2].split(None, 1)[0])
    finally:
        os.close(file)


def reopen(pinned: int, flags: int) -> int:
    """A descriptor to read the file of `pin`; this may wait for its file system."""
    return os.open(f"/proc/self/fd/{pinned}", flags | os.O_CLOEXEC)


def unescape(text: str) -> str:
    """A name without its escapes."""
    return _OCTAL.sub(lambda escape: chr(int(escape[1], 8)), text)
