"""What the values of options may look like, and how they are shown to a person.

A parser's docstring says what it accepts; it raises `ValueError` or `TypeError` for all else.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Parse = Callable[[Any], Any]


def text(value: Any) -> str:
    """a string"""
    if not isinstance(value, str):
        raise ValueError
    return value


def path(value: Any) -> Path:
    """a path"""
    return Path(text(value))


def absolute_path(value: Any) -> Path:
    """an absolute path"""
    if not (found := path(value)).is_absolute():
        raise ValueError
    return found


def http_url(value: Any) -> str:
    """http://HOST:PORT or https://HOST:PORT, or empty"""
    parts = urlsplit(text(value))
    if value and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError
    if parts.port == 0:  # which raises for what is no port at all
        raise ValueError
    return text(value)


def integer(value: Any) -> int:
    """a whole number that is not negative"""
    if isinstance(value, (bool, float)):
        raise ValueError
    number = int(value)
    if number < 0:
        raise ValueError
    return number


def boolean(value: Any) -> bool:
    """true or false"""
    if isinstance(value, bool):
        return value
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if not isinstance(value, str) or value.lower() not in known:
        raise ValueError
    return known[value.lower()]


def duration(value: Any) -> float:
    """a duration above zero such as 500ms, 1s, 5m or 2h (a plain number is seconds)"""
    if isinstance(value, bool):
        raise ValueError
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", str(value).strip())
    if not match:
        raise ValueError
    seconds = float(match[1]) * {"ms": 1e-3, "m": 60, "h": 3600, "d": 86400}.get(match[2], 1)
    if not 0 < seconds <= 366 * 86400:
        raise ValueError
    return seconds


def size(value: Any) -> int:
    """a size such as 4096, 64KiB, 16MiB or 1GiB (a plain number is bytes)"""
    if isinstance(value, bool):
        raise ValueError
    match = re.fullmatch(r"(\d{1,15})\s*(?:([KMGT])iB)?", str(value).strip())
    if not match:
        raise ValueError
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")


def regex(value: Any) -> str:
    """a regular expression"""
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError from error
    return text(value)


def address(value: Any) -> tuple[str, int]:
    """HOST:PORT, or :PORT for every interface, [IPV6]:PORT for IPv6"""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/\s]*):(\d{1,5})", text(value).strip())
    if not match or int(match[2]) > 65535:
        raise ValueError
    if match[1].startswith("["):
        ipaddress.IPv6Address(match[1].strip("[]"))
    return match[1].strip("[]"), int(match[2])


def listing(each: Parse) -> Parse:
    """A list of values: a TOML array, or one string with commas."""

    def parse(value: Any) -> tuple[Any, ...]:
        items = value if isinstance(value, list) else text(value).split(",")
        stripped = (item.strip() if isinstance(item, str) else item for item in items)
        return tuple(each(item) for item in stripped if item != "")

    parse.__doc__ = f"a list (an array, or separated by commas), each {each.__doc__}"
    return parse


_DURATION_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def show(value: Any) -> str:
    """A value as a person would write it in the file or on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _show_duration(value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
        return f"[{value[0]}]:{value[1]}" if ":" in value[0] else f"{value[0]}:{value[1]}"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def show_size(amount: int) -> str:
    """A number of bytes in the largest unit that divides it."""
    power = max(power for power in range(5) if amount % (1 << 10 * power) == 0)
    return f"{amount >> 10 * power}{('', 'KiB', 'MiB', 'GiB', 'TiB')[power]}" if amount else "0"


def _show_duration(seconds: float) -> str:
    """In the largest unit that divides it; seconds where none does."""
    for length, unit in _DURATION_UNITS:
        if seconds and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
