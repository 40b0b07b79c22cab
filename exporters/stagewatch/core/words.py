"""Text for people: durations, sizes, and printable forms of other users' text."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterable, Iterator
from itertools import chain, islice

_SPAN = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?(?::(\d{1,18}))?")
MAX_INDICES = 4096
_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def duration(seconds: float) -> str:
    """A duration in at most two units: `300 ms`, `48 s`, `6 min 52 s`, `3 h 5 min`, `2 d`."""
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds < 0.001:
        return "< 1 ms" if seconds else "0 s"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, name in _UNITS:
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {name}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def whole(seconds: float) -> str:
    """A duration without tenths, for coarse measurements: `8 s`."""
    return duration(round(seconds) or seconds)


def ranges(numbers: Iterable[int], most: int | None = None, between: str = ",") -> str:
    """`0-3,5` of 0, 1, 2, 3, 5; of more than `most` ranges the first, and `...`."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    shown = ["-".join(map(str, part)) for part in parts[:most]]
    return between.join([*shown, "..."] if len(parts) > len(shown) else shown)


def spans(text: str) -> Iterator[range]:
    """The ranges of `3`, `0-2,5` or `1,4-20:4`.  Raises `ValueError`."""
    for part in text.split(","):
        match = _SPAN.fullmatch(part)
        if not match:
            raise ValueError(f"not a list of numbers: {text[:60]!r}")
        yield range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1) or 1)


def indices_of(text: str) -> tuple[int, ...]:
    """The numbers of a list such as `0-2,5`; empty for other text and for too many numbers."""
    try:
        numbers = tuple(islice(chain.from_iterable(spans(text)), MAX_INDICES + 1))
    except ValueError:
        return ()
    return numbers if len(numbers) <= MAX_INDICES else ()


def ended(status: int | None) -> str:
    """How a process ended, by its `os.waitpid` status: `killed by SIGSEGV
    (Segmentation fault)`, `it exited with status 3`."""
    if status is None:
        return "nobody saw how"
    if not os.WIFSIGNALED(status):
        return f"it exited with status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(number).name} ({signal.strsignal(number)})"
    return f"killed by signal {number}"


def size(amount: float) -> str:
    """An amount of memory in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def denied(processes: int) -> str:
    """A sentence about processes that the agent may not read, and what it would need."""
    whose = "process of another user" if processes == 1 else "processes of other users"
    takes = "that takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
    return f"{processes} {whose} cannot be read: {takes}"


def printable(text: str, limit: int | None = None, *, substitute: str = "?") -> str:
    """Other users' text, with every control character and surrogate replaced.

    With a `limit`, only so many characters.
    """
    text = text[:limit]
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else substitute for char in text)
