"""Reads a pickle as plain data: nothing in it is imported, called or hashed.

Time and memory are linear in the size of the pickle, whoever wrote it.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import Any


class Unreadable(Exception):
    """The bytes are no pickle, or one with an opcode that checkpoints do not use."""


@dataclass(slots=True, eq=False)
class Node:
    """An object or dictionary of a pickle, by its name: `dict`, `pathlib.Path`, ..."""

    name: str
    arguments: Any = ()
    state: Any = None
    items: list[tuple[Any, Any]] = field(default_factory=list)

    def get(self, key: str) -> Any:
        """The value of a key in a dictionary or in the state of an object; `None` without it."""
        for name, value in self.items:
            if isinstance(name, str) and name == key:
                return value
        return self.state.get(key) if isinstance(self.state, Node) else None


_MARK = object()
_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING"),
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = {"PROTO", "FRAME"}


def read(data: bytes) -> Any:
    """The value of a pickle: `Node`s, lists (sets too), tuples, texts and numbers.

    Raises `Unreadable`.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            machine.do(opcode.name, argument)
        return machine.stack.pop()
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise Unreadable(str(error)) from error


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def do(self, name: str, argument: Any) -> None:  # noqa: PLR0912 - a branch an opcode
        stack = self.stack
        if name in _VALUES:
            stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "EMPTY_DICT":
            stack.append(Node("dict"))
        elif name in ("EMPTY_LIST", "EMPTY_SET"):
            stack.append([])
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[-count:] = [tuple(stack[-count:])]
        elif name in ("TUPLE", "FROZENSET"):
            stack.append(tuple(self._to_mark()))
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            stack[-1].items.append((key, value))
        elif name == "SETITEMS":
            flat = self._to_mark()
            stack[-1].items += zip(flat[::2], flat[1::2], strict=True)
        elif name == "APPEND":
            self._extend([stack.pop()])
        elif name in ("APPENDS", "ADDITEMS"):
            self._extend(self._to_mark())
        elif name == "GLOBAL":
            stack.append(Node(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            last, module = stack.pop(), stack.pop()
            stack.append(Node(f"{module[:200]}.{last[:200]}"))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, made = stack.pop(), stack.pop()
            stack.append(Node(made.name, arguments))
        elif name == "NEWOBJ_EX":
            _, arguments, made = stack.pop(), stack.pop(), stack.pop()
            stack.append(Node(made.name, arguments))
        elif name == "BUILD":
            state = stack.pop()
            stack[-1].state = state
        elif name == "BINPERSID":
            stack.append(Node("persistent", stack.pop()))
        elif name not in _IGNORED and name != "STOP":
            raise Unreadable(f"opcode {name}")

    def _extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target += values

    def _to_mark(self) -> list[Any]:
        """Pop all values above the last mark, and the mark."""
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]
