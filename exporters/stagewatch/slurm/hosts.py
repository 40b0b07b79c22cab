"""Expands Slurm's host lists (`h[001-003,7],m1`), without asking scontrol."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

MAX_HOSTS = 200_000
"""A list that would give more is refused: users can write host lists."""


@lru_cache(maxsize=8192)
def expand(text: str) -> tuple[str, ...]:
    """The host names of a list, in its order.  Raises `ValueError` for any other text."""
    if text in ("", "(null)", "None assigned", "N/A"):
        return ()
    names: list[str] = []
    for item in _split(text):
        for name in _expand_item(item):
            names.append(name)
            if len(names) > MAX_HOSTS:
                raise ValueError(f"host list of more than {MAX_HOSTS} names: {text[:60]!r}")
    return tuple(names)


def expand_or_none(text: str) -> tuple[str, ...]:
    """The host names of a list; none of a text that is no list."""
    try:
        return expand(text)
    except ValueError:
        return ()


def _split(text: str) -> Iterator[str]:
    depth = start = 0
    for position, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:position]
            start = position + 1
        if depth not in (0, 1):
            break
    if depth:
        raise ValueError(f"brackets do not match: {text[:60]!r}")
    yield text[start:]


def _expand_item(item: str) -> Iterator[str]:
    """One item, whose bracket groups (there may be several) multiply."""
    before, bracket, rest = item.partition("[")
    if not bracket:
        if not item or re.search(r"\s", item):
            raise ValueError(f"not a host name: {item[:60]!r}")
        yield item
        return
    ranges, closing, after = rest.partition("]")
    if not closing:
        raise ValueError(f"brackets do not match: {item[:60]!r}")
    tails = tuple(_expand_item(after)) if after else ("",)
    for number in _numbers(ranges):
        for tail in tails:
            yield before + number + tail


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()) or int(last) - int(first) >= MAX_HOSTS:
            raise ValueError(f"not a range: {part[:60]!r}")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
