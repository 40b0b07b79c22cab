"""Runs a command under a unit's `SystemCallFilter`, as systemd would.

`python -m tests.unit_filter LINES COMMAND...`, where LINES are the unit's values of
`SystemCallFilter`, one a line.  systemd-analyze knows the sets, and the C compiler the numbers.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import struct
import subprocess
import sys

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def available() -> bool:
    """Whether what it takes is installed."""
    return bool(shutil.which("systemd-analyze") and shutil.which("cc"))


def _run(*command: str, told: str = "") -> str:
    return subprocess.run(command, input=told, capture_output=True, text=True, check=True).stdout


def _calls(name: str) -> set[str]:
    """The system calls of a set, or the one of that name."""
    if not name.startswith("@"):
        return {name}
    lines = _run("systemd-analyze", "syscall-filter", "--no-pager", name).splitlines()[1:]
    names = [line.strip() for line in lines if line.strip() and "#" not in line]
    return set[str]().union(*map(_calls, names))


def program(filters: str) -> bytes:
    """A filter that lets pass what those lines let pass; all else is EPERM."""
    allowed = _calls("@default")
    for line in filters.splitlines():
        named = set[str]().union(*map(_calls, line.lstrip("~").split()))
        allowed = allowed - named if line.startswith("~") else allowed | named
    defined = _run("cc", "-dM", "-E", "-", told="#include <asm/unistd.h>")
    numbers = {
        int(number)
        for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", defined, re.MULTILINE)
        if name in allowed
    }
    steps = [struct.pack("=HBBI", _LOAD, 0, 0, 0)]
    for number in sorted(numbers):
        steps.append(struct.pack("=HBBI", _EQUAL, 0, 1, number))
        steps.append(struct.pack("=HBBI", _RETURN, 0, 0, _ALLOW))
    return b"".join([*steps, struct.pack("=HBBI", _RETURN, 0, 0, _ERRNO | errno.EPERM)])


def main() -> None:
    """Confine this process and go on as the command."""
    code = program(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    filter_of = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    if libc.prctl(22, 2, filter_of, 0, 0) != 0:  # PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), "seccomp")
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
