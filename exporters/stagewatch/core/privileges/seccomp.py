"""A filter of system calls for processes with privileges; see seccomp(2).

Calls that are not listed fail with ENOSYS, as on a kernel without them, so the C library falls back
to an older call. Files can only be opened for reading: a process that may trace another must not
write to its memory. The only sockets are the kernel's diagnostics, no namespace can be entered or
made, and programs run only with `RUN`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

RUN = "run programs"
"""The programs may also read the memory of other processes, but nothing else that this process "
"may not do."""
NETLINK = "ask the kernel by netlink"
KEEP = "pass descriptors, give up capabilities, and read the clock"

# The numbers on x86-64 (asm/unistd_64.h) and aarch64 (asm-generic/unistd.h); None where the
# machine has no such call.
_READ: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "lseek": (8, 62), "readv": (19, 65),
    "writev": (20, 66), "pread64": (17, 67), "getdents64": (217, 61), "fcntl": (72, 25),
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79),
    "statx": (332, 291), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, None), "readlinkat": (267, 78), "getcwd": (79, 17), "fadvise64": (221, 223),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216),
    "brk": (12, 214), "madvise": (28, 233), "futex": (202, 98), "rseq": (334, 293),
    "membarrier": (324, 283), "set_robust_list": (273, 99), "set_tid_address": (218, 96),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132), "restart_syscall": (219, 128), "tgkill": (234, 131),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "getrandom": (318, 278), "uname": (63, 160), "sysinfo": (99, 179),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "getrusage": (98, 165),
    "getrlimit": (97, 163), "setrlimit": (160, 164), "prlimit64": (302, 261), "times": (100, 153),
    "getpriority": (140, 141), "setpriority": (141, 140), "exit": (60, 93),
    "exit_group": (231, 94),
}  # fmt: skip
_MORE: dict[str, dict[str, tuple[int | None, int | None]]] = {
    RUN: {
        "execve": (59, 221), "vfork": (58, None), "fork": (57, None), "wait4": (61, 260),
        "waitid": (247, 95), "kill": (62, 129), "pipe": (22, None), "pipe2": (293, 59),
        "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "prctl": (157, 167),
        "arch_prctl": (158, None), "close_range": (436, 436), "epoll_create1": (291, 20),
        "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22),
        "eventfd2": (290, 19), "process_vm_readv": (310, 270), "sched_setaffinity": (203, 122),
    },
    NETLINK: {
        "bind": (49, 200), "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211),
        "recvmsg": (47, 212), "setsockopt": (54, 208), "getsockopt": (55, 209),
        "getsockname": (51, 204),
    },
    KEEP: {
        "sendmsg": (46, 211), "recvmsg": (47, 212), "capget": (125, 90), "capset": (126, 91),
        "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    },
}  # fmt: skip


class _Rule(NamedTuple):
    """A call that is allowed depending on one argument."""

    numbers: tuple[int | None, int | None]
    argument: int
    without: int = 0
    """Bits that must not be set."""
    one_of: tuple[int, ...] = ()


_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_NAMESPACES = 0x7E020080  # CLONE_NEW...
_ASKED = (0x5450, 0x5451, 0x5401, 0x5421)
"""The ioctls that Python uses: FIONCLEX, FIOCLEX, TCGETS, FIONBIO."""
_RULES = (
    _Rule((257, 56), 2, without=_WRITES),  # openat
    _Rule((2, None), 1, without=_WRITES),  # open
    _Rule((56, 220), 0, without=_NAMESPACES),  # clone
    _Rule((16, 29), 1, one_of=_ASKED),  # ioctl
)
_ASK = _Rule((41, 198), 0, one_of=(16,))  # socket of AF_NETLINK

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""The index of the machine's number, and AUDIT_ARCH of linux/audit.h."""
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data, little-endian


def program(machine: str, may: Iterable[str] = ()) -> bytes:
    """The filter as `struct sock_filter`s. Raises `KeyError` for an unknown machine."""
    which, audit = _MACHINES[machine]
    calls = {**_READ}
    rules = [*_RULES]
    for more in may:
        calls |= _MORE[more]
        if more == NETLINK:
            rules.append(_ASK)
    steps = [
        _step(_LOAD, _MACHINE_AT),
        _step(_EQUAL, audit, 1, 0),
        _step(_RETURN, _ERRNO | errno.ENOSYS),
        _step(_LOAD, _NUMBER_AT),
        _step(_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, _ERRNO | errno.ENOSYS),
    ]
    for numbers in calls.values():
        if (number := numbers[which]) is not None:
            steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ALLOW)]
    for rule in rules:
        if (number := rule.numbers[which]) is not None:
            checks = _checks(rule)
            steps += [_step(_EQUAL, number, 0, len(checks)), *checks]
    steps.append(_step(_RETURN, _ERRNO | errno.ENOSYS))
    return b"".join(steps)


def _checks(rule: _Rule) -> list[bytes]:
    """The steps for a call whose argument decides; they always return."""
    steps = [_step(_LOAD, _ARGUMENTS_AT + 8 * rule.argument)]  # its lower half
    if rule.without:
        steps += [_step(_ANY_BIT, rule.without, 1, 0), _step(_RETURN, _ALLOW)]
    for value in rule.one_of:
        steps += [_step(_EQUAL, value, 0, 1), _step(_RETURN, _ALLOW)]
    return [*steps, _step(_RETURN, _ERRNO | errno.EACCES)]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def confine(may: Iterable[str] = ()) -> str:
    """Restrict this process and its children to these calls for good.

    Returns why that is impossible here; empty on success.
    """
    try:
        code = program(os.uname().machine, may)
    except KeyError:
        return f"no filter of system calls is known for {os.uname().machine}"
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: a short, and after padding a pointer
    filter_of = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, without which only root may
    if libc.prctl(22, 2, filter_of, 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        return f"the kernel takes no filter of system calls: {os.strerror(ctypes.get_errno())}"
    return ""
