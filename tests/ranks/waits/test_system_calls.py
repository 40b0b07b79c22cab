"""The tables of system calls against the kernel's own headers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stagewatch.ranks.waits.system_calls import calls

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


_NUMBER = re.compile(r"#define __NR(?:3264)?_(\w+) (\d+)")


SINCE_6_7 = {"futex_wait": 455}


@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_are_those_of_the_kernel(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("needs the headers of the kernel (Debian package linux-libc-dev)")
    told = {name: int(number) for name, number in _NUMBER.findall(HEADERS[machine].read_text())}
    told = SINCE_6_7 | told
    if machine == "aarch64":  # the header names those of 32 bits after what they became
        told["newfstatat"] = told.get("newfstatat", told["fstatat"])
    found = calls(machine)
    assert len(found) > 70
    assert {call.name: number for number, call in found.items()} == {
        call.name: told[call.name] for call in found.values()
    }
