"""Many courses of made-up series in one run of promtool, each in clusters of its own.

At every look promtool parses and prints each rule anew, which takes it far longer than to evaluate
the rule over a few series: a dozen courses side by side cost little more than one.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.alerts.promtool import failures_of, write
from tests.alerts.rule_files import names_read

LIMIT = 550.0
"""Seconds for a run of promtool."""
patient = pytest.mark.timeout(600)
"""For a module of courses: its first test waits for them all."""


@dataclass(frozen=True, slots=True)
class Case:
    """Input series in promtool's notation, and what an expression has at a time."""

    given: Mapping[str, str]
    expected: Sequence[tuple[str, str, Mapping[str, float]]]
    backwards: bool = False
    """Whether the last group of rules is evaluated first."""


class Courses:
    """The cases of one module over the same rules; played once, when the first is asked for.

    The module needs an xdist group of its own, so that one worker plays them.
    """

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules = rules
        self._cases: dict[str, Case] = {}
        self._failures: dict[str, list[str]] | None = None

    def __call__(
        self, *arguments: Sequence[object], ids: Sequence[str] = ()
    ) -> Callable[[Callable[..., Case]], Callable[..., None]]:
        """Make a test of a function that returns a case, one for each of these arguments."""

        def decorate(build: Callable[..., Case]) -> Callable[..., None]:
            names = [f"{build.__name__} {number}" for number in range(len(arguments or [()]))]
            for name, each in zip(names, arguments or [()], strict=True):
                self._cases[name] = build(*each)

            def alone(tmp_path: Path) -> None:
                assert self.failures(tmp_path)[names[0]] == []

            def one_of_them(tmp_path: Path, name: str) -> None:
                assert self.failures(tmp_path)[name] == []

            test = one_of_them if arguments else alone
            test.__name__, test.__doc__ = build.__name__, build.__doc__
            test.__module__, test.__qualname__ = build.__module__, build.__qualname__
            if arguments:
                shown = ids or ["-".join(map(str, each)) for each in arguments]
                return pytest.mark.parametrize("name", names, ids=shown)(test)
            return test

        return decorate

    def failures(self, directory: Path) -> dict[str, list[str]]:
        """What promtool has found wrong in each case."""
        if self._failures is None:
            failures: dict[str, list[str]] = {name: [] for name in self._cases}
            for backwards in {case.backwards for case in self._cases.values()}:
                for failure in self._play(directory, backwards):
                    place = re.match(r" +expr: .*?case-(\d+)/", failure)
                    # What is not of an expression, as a rule's error, has ended the run of all.
                    names = [list(failures)[int(place[1])]] if place else list(failures)
                    for name in names:
                        failures[name].append(failure)
            self._failures = failures
        return self._failures

    def _play(self, directory: Path, backwards: bool) -> list[str]:
        given: dict[str, str] = {}
        expected: list[tuple[str, str, Mapping[str, float]]] = []
        for number, case in enumerate(self._cases.values()):
            if case.backwards is not backwards:
                continue
            given |= {moved(name, number): values for name, values in case.given.items()}
            for expression, when, samples in case.expected:
                here = {moved(labels, number): value for labels, value in samples.items()}
                expected.append((within(moved(expression, number), number), when, here))
        file = write(directory, self._rules, given, expected, backwards=backwards)
        try:
            return failures_of(file, LIMIT)
        except subprocess.TimeoutExpired as error:
            return [str(error)]


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
