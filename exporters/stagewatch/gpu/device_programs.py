"""Which devices a cgroup of version 2 may use, as the kernel's own programs decide.

Version 2 has no list of devices: whoever confines a cgroup (slurmstepd, systemd, a container
runtime) has the kernel ask a BPF program at each `open`.  Here those programs are read back and
asked the same question, instruction by instruction.

https://docs.kernel.org/admin-guide/cgroup-v2.html#device-controller
https://www.rfc-editor.org/rfc/rfc9669 (the instruction set)
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CHARACTER_DEVICE = 2
READ_AND_WRITE = 2 | 4
MAX_STEPS = 1 << 16

_LOAD, _ALU32, _JUMP, _JUMP32, _ALU64 = 1, 4, 5, 6, 7  # classes: the low three bits of the code
_REGISTER = 0x08  # the second operand is a register, not a constant
_EXIT, _ALWAYS, _MOVE = 0x90, 0x00, 0xB0
_CONTEXT = 1 << 48
"""Where the program is told that the question lies: an address nothing else comes to."""

_ARITHMETIC: dict[int, Callable[[int, int], int]] = {
    0x00: operator.add,
    0x10: operator.sub,
    0x20: operator.mul,
    0x40: operator.or_,
    0x50: operator.and_,
    0x60: lambda a, b: a << (b & 63),
    0x70: lambda a, b: a >> (b & 63),
    0xA0: operator.xor,
}
_CONDITIONS: dict[int, Callable[[int, int], bool]] = {
    0x10: operator.eq,
    0x20: operator.gt,
    0x30: operator.ge,
    0x40: lambda a, b: bool(a & b),
    0x50: operator.ne,
    0xA0: operator.lt,
    0xB0: operator.le,
}
_WIDTHS = {0x61: "<I", 0x69: "<H", 0x71: "<B"}


class NotUnderstood(Exception):
    """A program does what none of the usual ones does: helpers, maps, a stack."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the programs of a cgroup say about one device."""

    allowed: bool
    named: bool
    """Whether one of them compared the minor number with exactly this one."""


class _Minor(int):
    """The minor number on its way from the question to a comparison."""


def ask(programs: Sequence[bytes], major: int, minor: int) -> Answer:
    """Whether a character device may be opened for reading and writing.

    The kernel lets it be where every program says so.  Raises `NotUnderstood`.
    """
    answers = [_run(program, major, minor) for program in programs]
    return Answer(all(each.allowed for each in answers), any(each.named for each in answers))


def _run(program: bytes, major: int, minor: int) -> Answer:
    question = struct.pack("<III", READ_AND_WRITE << 16 | CHARACTER_DEVICE, major, minor)
    code = list(struct.iter_unpack("<BBhi", program))
    registers: list[int] = [0] * 16
    registers[1] = _CONTEXT
    named, at = False, 0
    for _ in range(MAX_STEPS):
        if not 0 <= at < len(code):
            break
        opcode, pair, offset, constant = code[at]
        to, source = pair & 0xF, pair >> 4
        kind, operation = opcode & 7, opcode & 0xF0
        wide = kind in (_ALU64, _JUMP)
        mask = (1 << 64) - 1 if wide else (1 << 32) - 1
        second = registers[source] if opcode & _REGISTER else constant & mask
        at += 1
        if kind == _LOAD:
            registers[to] = _load(question, opcode, registers[source] + offset)
        elif kind in (_ALU32, _ALU64):
            registers[to] = _compute(operation, registers[to], second, mask)
        elif kind == _JUMP and operation == _EXIT:
            return Answer(bool(registers[0] & 0xFFFFFFFF), named)
        elif kind == _JUMP and operation == _ALWAYS:
            at += offset
        elif kind in (_JUMP, _JUMP32) and operation in _CONDITIONS:
            first, second = registers[to], second & mask
            equality = _CONDITIONS[operation] in (operator.eq, operator.ne)
            named |= equality and isinstance(first, _Minor) and first == second
            at += offset if _CONDITIONS[operation](first & mask, second) else 0
        else:
            break
    raise NotUnderstood(f"instruction {at} of {len(code)}")


def _load(question: bytes, opcode: int, address: int) -> int:
    offset = address - _CONTEXT
    width = _WIDTHS.get(opcode)
    if width is None or not 0 <= offset <= len(question) - struct.calcsize(width):
        raise NotUnderstood("a load from elsewhere than the question")
    value = int(struct.unpack_from(width, question, offset)[0])
    return _Minor(value) if (opcode, offset) == (0x61, 8) else value


def _compute(operation: int, first: int, second: int, mask: int) -> int:
    if operation == _MOVE:
        return second if isinstance(second, _Minor) else second & mask
    if operation not in _ARITHMETIC:
        raise NotUnderstood(f"arithmetic {operation:#x}")
    return _ARITHMETIC[operation](first & mask, second & mask) & mask
