"""What a process may do behind the filter of system calls; and the filter for the other machine."""

from __future__ import annotations

import errno
import os
import re
import struct
from pathlib import Path

import pytest

from stagewatch.core.privileges import seccomp
from stagewatch.core.privileges.seccomp import KEEP, NETLINK, RUN, program
from tests.running import Python

ALLOWED = 0x7FFF0000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def decide(code: bytes, audit: int, number: int, *arguments: int) -> int:
    """Run a filter as the kernel does; see linux/filter.h.  0 for allowed, else the errno."""
    steps = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    given = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number, audit, 0, *given)
    at = held = 0
    while True:
        kind, if_true, if_false, value = steps[at]
        at += 1
        if kind == 0x20:
            [held] = struct.unpack_from("<I", data, value)
        elif kind == 0x06:
            return 0 if value == ALLOWED else value & 0xFFFF
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[kind]
            at += if_true if holds else if_false


@pytest.mark.parametrize(("machine", "openat", "execve", "socket", "clone"), [
    ("x86_64", 257, 59, 41, 56), ("aarch64", 56, 221, 198, 220),
])  # fmt: skip
def test_what_is_listed_passes_on_either_machine_and_nothing_else(
    machine: str, openat: int, execve: int, socket: int, clone: int
) -> None:
    def does(number: int, *arguments: int, may: tuple[str, ...] = ()) -> int:
        return decide(program(machine, may), AUDIT[machine], number, *arguments)

    assert does(openat, 0, 0, os.O_RDONLY | os.O_CLOEXEC) == 0
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_CREAT, os.O_RDONLY | os.O_TRUNC):
        assert does(openat, 0, 0, flags, may=(RUN, NETLINK, KEEP)) == errno.EACCES
    assert does(execve) == errno.ENOSYS and does(execve, may=(RUN,)) == 0
    assert does(socket, 16) == errno.ENOSYS and does(socket, 16, may=(NETLINK,)) == 0
    assert does(socket, 2, may=(NETLINK,)) == errno.EACCES
    assert does(clone, 0x003D0F00) == 0, "a thread"
    assert does(clone, 0x10000000) == errno.EACCES, "a user namespace"
    assert does(100_000) == errno.ENOSYS
    other = next(audit for name, audit in AUDIT.items() if name != machine)
    assert decide(program(machine), other, openat) == errno.ENOSYS


@pytest.mark.parametrize(("which", "machine"), list(enumerate(HEADERS)))
def test_the_numbers_are_those_of_the_kernel(which: int, machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("needs the kernel's headers")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text())
    known = {name: int(number) for name, number in found}
    known.setdefault("newfstatat", known.get("fstatat", -1))
    calls = {**seccomp._READ, **{n: c for more in seccomp._MORE.values() for n, c in more.items()}}
    wrong = {
        name: numbers[which]
        for name, numbers in calls.items()
        if numbers[which] is not None and numbers[which] != known.get(name)
    }
    assert not wrong


TRIES = """
import ctypes, os, socket, subprocess, sys
from stagewatch.core.privileges import seccomp
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
tries = {
    "write": lambda: open(sys.argv[1], "w"),
    "memory": lambda: os.open("/proc/self/mem", os.O_RDWR),
    "remove": lambda: os.unlink(sys.argv[1]),
    "listen": lambda: socket.socket(),
    "unix": lambda: socket.socket(socket.AF_UNIX),
    "run": lambda: os.execv("/bin/true", ["true"]),
    "trace": lambda: call(101, 16, os.getppid(), 0, 0),
    "take": lambda: call(438, 3, 0, 0),
    "handle": lambda: call(304, 0, 0, 0),
    "user": lambda: os.setuid(os.getuid()),
    "namespace": lambda: call(272, 0x10000000),
}
assert seccomp.confine() == ""
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "succeeds")
    except OSError as error:
        print(name, "fails")
print("reads", len(open("/proc/self/status").read()) > 0)
import threading
threads = [threading.Thread(target=print, args=("thread",)) for _ in range(2)]
for thread in threads:
    thread.start()
    thread.join()
"""


def test_a_confined_process_reads_and_does_nothing_else(python: Python, tmp_path: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86-64")
    (kept := tmp_path / "kept").write_text("kept")
    said = python(TRIES, kept).finish()
    assert "succeeds" not in said
    assert said.count("fails") == 11
    assert said.endswith("reads True\nthread\nthread\n")
    assert kept.read_text() == "kept"
