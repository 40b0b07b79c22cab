"""Connections that the kernel dropped because nobody accepted them in time."""

from __future__ import annotations

from pathlib import Path


def listen_overflows(proc: Path, pid: int | str) -> int | None:
    """ListenOverflows of a process's network namespace, out of `/proc/<pid>/net/netstat`.

    The file has pairs of lines, names above numbers.  `None` where it cannot be read.
    """
    try:
        lines = (proc / str(pid) / "net" / "netstat").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    for names, numbers in zip(lines[::2], lines[1::2], strict=False):
        found = dict(zip(names.split(), numbers.split(), strict=False))
        value = found.get("ListenOverflows", "")
        if value.isdecimal():
            return int(value)
    return None
