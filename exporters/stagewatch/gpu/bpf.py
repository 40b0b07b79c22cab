"""The BPF programs that the kernel asks about the devices of a cgroup, read back from it.

See bpf(2) and `union bpf_attr` in linux/bpf.h.  It takes CAP_SYS_ADMIN.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

_SYSCALL = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
_FD_BY_ID, _INFO_BY_FD, _QUERY = 13, 15, 16
_DEVICES = 6  # the place of device programs: BPF_CGROUP_DEVICE
_WITH_INHERITED = 1
MAX_PROGRAMS = 64
_libc = ctypes.CDLL(None, use_errno=True)


def device_programs(cgroup: Path) -> list[bytes]:
    """The instructions of every program that has a say in a cgroup, its parents' among them.

    Raises `OSError`: no cgroup of version 2, no right to ask, or a kernel without.
    """
    directory = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        ids = (ctypes.c_uint32 * MAX_PROGRAMS)()
        query = _attributes(
            struct.pack(
                "=IIIIQI", directory, _DEVICES, _WITH_INHERITED, 0, ctypes.addressof(ids), len(ids)
            )
        )
        _bpf(_QUERY, query)
    finally:
        os.close(directory)
    (count,) = struct.unpack_from("=I", query, 24)
    return [_instructions(number) for number in ids[:count]]


def _instructions(number: int) -> bytes:
    program = _bpf(_FD_BY_ID, _attributes(struct.pack("=I", number)))
    try:
        (length,) = struct.unpack_from("=I", _info(program), 20)
        code = ctypes.create_string_buffer(length)
        _info(program, struct.pack("=IIQQ", 0, length, 0, ctypes.addressof(code)))
        return code.raw
    finally:
        os.close(program)


def _info(program: int, wanted: bytes = b"") -> ctypes.Array[ctypes.c_char]:
    """`struct bpf_prog_info`: type, id, tag (8 bytes), two lengths, two addresses, ..."""
    info = ctypes.create_string_buffer(256)
    ctypes.memmove(ctypes.byref(info, 16), wanted, len(wanted))
    _bpf(_INFO_BY_FD, _attributes(struct.pack("=IIQ", program, len(info), ctypes.addressof(info))))
    return info


def _attributes(packed: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(packed, 128)


def _bpf(command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
    if _SYSCALL is None:
        raise OSError(f"bpf(2) on {platform.machine()} is not known here")
    result = int(_libc.syscall(_SYSCALL, command, attributes, len(attributes)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
