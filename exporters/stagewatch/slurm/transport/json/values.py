"""Values in Slurm's JSON, which changed their shape over the versions of its data parser.

A number that may be unset is `7`, `null`, `"7"` or `{"set": true, "infinite": false, "number": 7}`;
a state is `"RUNNING"` or `["RUNNING", "COMPLETING"]`; a list is a list or one string with commas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Object = Mapping[str, Any]
_UNSET = frozenset((0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF))
"""NO_VAL and INFINITE in 32 and 64 bits, as old versions print some of them."""


def number(value: Any) -> int | None:
    """A whole number; `None` where it is unset, infinite or of no known shape."""
    if isinstance(value, Mapping):
        if value.get("infinite") or value.get("set") is False:
            return None
        return number(value.get("number"))
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 20 else None
    if isinstance(value, float):
        return int(value) if abs(value) < 1e18 else None
    return value if isinstance(value, int) and value not in _UNSET else None


def moment(value: Any) -> int | None:
    """A Unix time; 0 means that there is none."""
    found = number(value)
    return found if found is not None and found > 0 else None


def text(value: Any) -> str:
    """A string; empty for anything else."""
    return value if isinstance(value, str) else ""


def names(value: Any) -> list[str]:
    """The strings of a list, or of one string with commas."""
    if isinstance(value, str):
        return [part for part in value.split(",") if part]
    if isinstance(value, list):
        return [part for part in value if isinstance(part, str) and part]
    return []


def inner(value: Any, *path: str) -> Any:
    """What lies at a path of keys; `None` where there is nothing."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def objects(value: Any) -> Iterator[Object]:
    """The objects of a list; other things in it are passed over."""
    if isinstance(value, list):
        for each in value:
            if isinstance(each, Mapping):
                yield each


def exit_status(value: Any) -> tuple[int, int]:
    """Exit code and signal: of a raw wait status, or of an object with `return_code`."""
    if isinstance(value, Mapping) and "return_code" in value:
        code = number(value.get("return_code")) or 0
        signal = value.get("signal")
        found = inner(signal, "id")
        if found is None:
            found = inner(signal, "signal_id")
        return code, number(found) or 0
    raw = number(value) or 0
    return (raw >> 8) & 0xFF, raw & 0x7F
