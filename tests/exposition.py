"""Reads what an agent serves at /metrics, five times as fast as Prometheus' own library.

That the text is well formed is shown elsewhere: `tests/core/test_exposition.py` asks that library,
and Prometheus scrapes every agent in `tests/lab`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

Labels = list[tuple[str, str]]
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
_PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = {r"\n": "\n", r"\"": '"', r"\\": "\\"}


def samples(text: str) -> Iterator[tuple[str, Labels, float]]:
    """Name, labels and value of each sample, in their order."""
    for series, value in _lines(text):
        yield *_parted(series), value


def series_of(text: str) -> Series:
    """The value of each series, by name and labels."""
    return {_key(series): value for series, value in _lines(text)}


def _lines(text: str) -> Iterator[tuple[str, float]]:
    for line in text.split("\n"):
        if line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            yield series, float(value)


@lru_cache(1 << 15)
def _key(series: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Remembered: who waits for a series reads nearly the same page again and again."""
    name, labels = _parted(series)
    return name, frozenset(labels)


def _parted(series: str) -> tuple[str, Labels]:
    name, _, labels = series.partition("{")
    return name, [(key, _plain(label)) for key, label in _PAIR.findall(labels)]


def _plain(label: str) -> str:
    if "\\" not in label:
        return label
    return re.sub(r"\\.", lambda match: _ESCAPED.get(match[0], match[0]), label)
