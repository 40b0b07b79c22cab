"""Many cases of made-up series in one run of promtool, each in clusters of its own.

At every look promtool parses and prints each rule anew, which takes it far longer than to evaluate
the rule over a few series: a dozen cases side by side cost little more than one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.alerts.promtool import failures_of, write
from tests.alerts.rule_files import names_read


@dataclass(frozen=True, slots=True)
class Case:
    """Input series in promtool's notation, and what an expression has at a time."""

    given: Mapping[str, str]
    expected: Sequence[tuple[str, str, Mapping[str, float]]]


def play_together(
    directory: Path, rules: Sequence[str], cases: Mapping[str, Case], *, interval: str = "2s"
) -> None:
    """Assert what each case expects; what fails is told with the name of its case."""
    given: dict[str, str] = {}
    expected: list[tuple[str, str, Mapping[str, float]]] = []
    for number, case in enumerate(cases.values()):
        given |= {moved(name, number): values for name, values in case.given.items()}
        for expression, when, samples in case.expected:
            here = {moved(labels, number): value for labels, value in samples.items()}
            expected.append((within(moved(expression, number), number), when, here))
    told = "\n".join(failures_of(write(directory, rules, given, expected, interval=interval)))
    assert not told, re.sub(r"case-(\d+)/", lambda match: f"{[*cases][int(match[1])]}/", told)


def moved(text: str, number: int) -> str:
    """With each cluster that is named made one of this case's."""
    return re.sub(r"\bcluster=\"", f'cluster="case-{number}/', text)


def within(expression: str, number: int) -> str:
    """With each selector limited to the clusters of this case."""
    names = "|".join(map(re.escape, sorted(names_read(expression), key=len, reverse=True)))
    only = f'cluster=~"case-{number}/.*"'

    def limited(match: re.Match[str]) -> str:
        return f"{match[1]}{{{only}, " if match[2] else f"{match[1]}{{{only}}}"

    return re.sub(rf"(?<![\w:\"])({names})(?![\w:\"])({{)?", limited, expression)
