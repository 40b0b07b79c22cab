"""Builds PromQL selectors, quoting every value: a job, a role or a node may have any name.

https://prometheus.io/docs/prometheus/latest/querying/basics/
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
"""What means something in an RE2 expression, as Go's regexp.QuoteMeta has it."""

_ESCAPES = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    | dict.fromkeys(map(chr, [*range(0xD800, 0xE000), 0xFFFD]), r"\ufffd")
)
"""Half a surrogate pair, which no label can hold, becomes U+FFFD; and that is escaped, since
Prometheus refuses the character itself as if it were no UTF-8."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A label's whole value matches this RE2 expression."""

    expression: str


@dataclass(frozen=True, slots=True)
class Not:
    """A label has any value but this one."""

    value: str


Wanted = str | Sequence[str] | Regex | Not
"""The wanted values of a label: one value, one of several, or a `Regex` or `Not`."""


def select(metric: str, /, **labels: Wanted) -> str:
    """A selector such as `up{job="stagewatch", node=~"a|b"}`."""
    if not _NAME.fullmatch(metric):
        raise ValueError(f"{metric!r} is no name of a metric")
    return f"{metric}{{{matchers(**labels)}}}"


def matchers(**labels: Wanted) -> str:
    """The matchers between the braces of a selector."""
    return ", ".join(_matcher(label, wanted) for label, wanted in labels.items())


def quoted(value: str) -> str:
    """A string literal."""
    return f'"{value.translate(_ESCAPES)}"'


def _matcher(label: str, wanted: Wanted) -> str:
    if not _LABEL.fullmatch(label):
        raise ValueError(f"{label!r} is no name of a label")
    if isinstance(wanted, str):
        return f"{label}={quoted(wanted)}"
    if isinstance(wanted, Not):
        return f"{label}!={quoted(wanted.value)}"
    if isinstance(wanted, Regex):
        return f"{label}=~{quoted(wanted.expression)}"
    if not wanted:
        raise ValueError(f"no value of {label!r} to choose from")
    return f"{label}=~{quoted('|'.join(map(_literal, wanted)))}"


def _literal(value: str) -> str:
    """An RE2 expression that matches only this value."""
    return _SPECIAL.sub(r"\\\g<0>", value)
