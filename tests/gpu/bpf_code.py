"""Device programs as those that confine a cgroup write them, and how to have a kernel ask one."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagewatch.gpu import bpf
from stagewatch.host.mounts import read_mounts

BLOCK, CHARACTER = 1, 2
DO_NOT_CARE = -1
_LOAD, _ATTACH, _DEVICES = 5, 8, 15


@dataclass(frozen=True)
class Rule:
    """What one entry says about the devices it fits."""

    major: int
    minor: int = DO_NOT_CARE
    allow: bool = True
    kind: int = CHARACTER

    def fits(self, major: int, minor: int) -> bool:
        return self.kind == CHARACTER and self.major == major and self.minor in (DO_NOT_CARE, minor)


def instruction(
    code: int, to: int = 0, source: int = 0, offset: int = 0, constant: int = 0
) -> bytes:
    return struct.pack("<BBhi", code, source << 4 | to, offset, constant)


def answer(allow: bool) -> bytes:
    return instruction(0xB7, constant=int(allow)) + instruction(0x95)


def slurm(rules: Sequence[Rule], *, otherwise: bool = True) -> bytes:
    """As slurmstepd 22.05 loads it (read back from one): what no rule fits is let through."""
    code = instruction(0x61, 2, 1) + instruction(0x54, 2, constant=0xFFFF)
    code += instruction(0x61, 3, 1) + instruction(0x74, 3, constant=16)
    code += instruction(0x61, 4, 1, 4) + instruction(0x61, 5, 1, 8)
    for rule in rules:
        tests = [(2, rule.kind), (4, rule.major), (5, rule.minor)]
        tests = [test for test in tests if test[1] != DO_NOT_CARE]
        for number, (register, constant) in enumerate(tests):
            code += instruction(0x55, register, 0, len(tests) - number + 1, constant)
        code += answer(rule.allow)
    return code + answer(otherwise)


def systemd(rules: Sequence[Rule]) -> bytes:
    """In the manner of `DevicePolicy=strict`: what no rule fits is refused, and access is asked
    for in a register of its own."""
    code = instruction(0x61, 2, 1) + instruction(0x54, 2, constant=0xFFFF)
    code += instruction(0x61, 3, 1) + instruction(0x74, 3, constant=16)
    code += instruction(0x61, 4, 1, 4) + instruction(0x61, 5, 1, 8)
    for rule in rules:
        tests = [(2, rule.kind), (4, rule.major)]
        tests += [(5, rule.minor)] if rule.minor != DO_NOT_CARE else []
        code += instruction(0xBC, 1, 3) + instruction(0x54, 1, constant=2 | 4)
        code += instruction(0x5D, 1, 3, len(tests) + 2)  # asks for more than reading and writing
        for number, (register, constant) in enumerate(tests):
            code += instruction(0x55, register, 0, len(tests) - number + 1, constant)
        code += answer(True)
    return code + answer(False)


@contextmanager
def real_cgroup() -> Iterator[Path]:
    """A cgroup of version 2, removed in the end with all below it; skips where none can be made."""
    roots = [m.point for m in read_mounts(Path("/proc/self/mountinfo")) if m.fstype == "cgroup2"]
    if not roots or os.geteuid() != 0:
        pytest.skip("needs root and a mounted cgroup2: device programs are for the privileged")
    path = Path(roots[0]) / f"stagewatch-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a cgroup in {roots[0]}: {error.strerror}")
    try:
        yield path
    finally:
        for directory, _, _ in os.walk(path, topdown=False):
            Path(directory).rmdir()


def confined(cgroup: Path, program: bytes) -> None:
    """Have the kernel ask a program for a cgroup until that is removed; skips where it may not."""
    code, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b"GPL")
    wanted = struct.pack(
        "=IIQQ", _DEVICES, len(program) // 8, ctypes.addressof(code), ctypes.addressof(licence)
    )
    try:
        loaded = bpf._bpf(_LOAD, bpf._attributes(wanted))
    except PermissionError as error:
        pytest.skip(f"this kernel lets no device program be loaded: {error}")
    directory = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    try:
        bpf._bpf(_ATTACH, bpf._attributes(struct.pack("=IIII", directory, loaded, 6, 1)))
    finally:
        os.close(directory)
        os.close(loaded)
