"""The system calls that a thread may wait in, by number, and what their arguments mean.

Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (aarch64) in
the kernel.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Role(Enum):
    """What a call waits for, and which of its arguments names that."""

    READ = "reads"
    """From the descriptor in the first argument."""
    WRITE = "writes"
    """To the descriptor in the first argument."""
    CONNECT = "connects"
    ACCEPT = "accepts"
    POLL = "polls"
    """The array in the first argument, of as many descriptors as the second says."""
    SELECT = "selects"
    """Descriptors below the number in the first argument."""
    EPOLL = "waits for events"
    """The epoll instance in the first argument."""
    FUTEX = "futex"
    """At the address in the first argument; the second has the operation, the third a value."""
    WAIT_PID = "waits for a child"
    """The process in the first argument, or any child."""
    FORK = "starts"
    """A child that shares its memory until it executes a program."""
    WAIT_ID = "waits for one"
    """The second argument, of the type that the first one names."""
    SLEEP = "sleeps"
    SIGNAL = "waits for a signal"
    FLOCK = "locks"
    """The descriptor in the first argument."""
    FCNTL = "controls"
    """The descriptor in the first argument, with the command in the second."""
    FILE = "file"
    """The file of the descriptor in the first argument."""
    PATH = "path"
    """A file whose name is in the process's memory, which is not read."""
    DEVICE = "device"
    """The driver of the descriptor in the first argument."""
    OTHER = "other"


class Call(NamedTuple):
    """One system call."""

    name: str
    role: Role


_TABLE = """
READ    read 0 63  readv 19 65  pread64 17 67  preadv 295 69  preadv2 327 286
READ    recvfrom 45 207  recvmsg 47 212  recvmmsg 299 243
WRITE   write 1 64  writev 20 66  pwrite64 18 68  pwritev 296 70  pwritev2 328 287
WRITE   sendto 44 206  sendmsg 46 211  sendmmsg 307 269  sendfile 40 71
CONNECT connect 42 203
ACCEPT  accept 43 202  accept4 288 242
POLL    poll 7 -  ppoll 271 73
SELECT  select 23 -  pselect6 270 72
EPOLL   epoll_wait 232 -  epoll_pwait 281 22  epoll_pwait2 441 441
FUTEX   futex 202 98  futex_wait 455 455
WAIT_PID wait4 61 260
WAIT_ID waitid 247 95
FORK    vfork 58 -  clone 56 220  clone3 435 435
SLEEP   nanosleep 35 101  clock_nanosleep 230 115
SIGNAL  pause 34 -  rt_sigsuspend 130 133  rt_sigtimedwait 128 137
FLOCK   flock 73 32
FCNTL   fcntl 72 25
FILE    fsync 74 82  fdatasync 75 83  syncfs 306 267  sync_file_range 277 84  fstat 5 80
FILE    getdents64 217 61  ftruncate 77 46  fallocate 285 47  close 3 57  fstatfs 138 44
FILE    copy_file_range 326 285  lseek 8 62
PATH    openat 257 56  openat2 437 437  open 2 -  newfstatat 262 79  statx 332 291  stat 4 -
PATH    lstat 6 -  unlinkat 263 35  unlink 87 -  rename 82 -  renameat 264 38  renameat2 316 276
PATH    mkdirat 258 34  mkdir 83 -  faccessat 269 48  faccessat2 439 439  access 21 -
PATH    readlinkat 267 78  statfs 137 43  chdir 80 49  execve 59 221  sync 162 81  msync 26 227
PATH    mmap 9 222  munmap 11 215  utimensat 280 88
DEVICE  ioctl 16 29
OTHER   futex_waitv 449 449  msgrcv 70 188  msgsnd 69 189  semop 65 193  semtimedop 220 192
OTHER   mq_timedreceive 243 183  mq_timedsend 242 182  io_uring_enter 426 426
OTHER   io_getevents 208 4  io_pgetevents 333 292  restart_syscall 219 128  splice 275 76
"""
_COLUMN = {"x86_64": 0, "aarch64": 1}


def calls(machine: str) -> dict[int, Call]:
    """The system calls of a machine by number; empty for an unknown machine.

    `machine`: its name in uname(2)."""
    column = _COLUMN.get(machine)
    found: dict[int, Call] = {}
    for line in _TABLE.split("\n"):
        role, *words = line.split() or [""]
        for name, *numbers in zip(*[iter(words)] * 3, strict=True):
            if column is not None and numbers[column] != "-":
                found[int(numbers[column])] = Call(name, Role[role])
    return found
