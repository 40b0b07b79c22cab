"""Rules evaluated by promtool over made-up series."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ALERTS = Path(__file__).parents[2] / "alerts"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool, from Debian's package prometheus"
)


class Series:
    """Input series by their text, each with one value throughout."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def add(self, name: str, value: float | None, /, **labels: object) -> None:
        """One series; nothing where the value is not known."""
        if value is not None:
            self.values[series(name, **labels)] = value


def series(name: str, /, **labels: object) -> str:
    """As PromQL writes it."""
    pairs = ", ".join(f"{key}={json.dumps(str(value))}" for key, value in labels.items())
    return f"{name}{{{pairs}}}"


def evaluate(
    directory: Path, rules: str, given: Series, expected: dict[str, dict[str, float]]
) -> None:
    """Assert that each expression has exactly these samples after a minute."""
    play(
        directory,
        [rules],
        {name: f"{value!r}x15" for name, value in given.values.items()},
        [(expression, "1m", samples) for expression, samples in expected.items()],
        interval="5s",
    )


def play(
    directory: Path,
    rules: Sequence[str],
    given: Mapping[str, str],
    expected: Sequence[tuple[str, str, Mapping[str, float]]],
    *,
    interval: str = "2s",
) -> None:
    """Assert what an expression has at a time, of input series given in promtool's notation."""
    check(write(directory, rules, given, expected, interval=interval))


def write(
    directory: Path,
    rules: Sequence[str],
    given: Mapping[str, str],
    expected: Sequence[tuple[str, str, Mapping[str, float]]],
    *,
    interval: str = "2s",
) -> Path:
    """A test for promtool of what an expression has at a time, of series in its notation.

    Groups are evaluated as they follow each other in the files.
    """
    order = [group for name in rules for group in group_names(ALERTS / name)]
    test: dict[str, Any] = {
        "rule_files": [str(ALERTS / name) for name in rules],
        "evaluation_interval": interval,
        "group_eval_order": order,
        "tests": [
            {
                "interval": interval,
                "input_series": [
                    {"series": name, "values": values} for name, values in given.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": expression,
                        "eval_time": when,
                        "exp_samples": [
                            {"labels": labels, "value": value} for labels, value in samples.items()
                        ],
                    }
                    for expression, when, samples in expected
                ],
            }
        ],
    }
    file = directory / "made-up.test.yaml"
    file.write_text(json.dumps(test))  # JSON is YAML
    return file


def check(file: Path) -> None:
    """Assert that promtool is content with a test file."""
    assert not (failures := failures_of(file)), "\n".join(failures)


def failures_of(file: Path, limit: float = 250) -> list[str]:
    """What promtool finds wrong in a test file, one text for each expression or alert.

    Or one for all, if a rule could not be evaluated.
    """
    # A database of its own for each test, which a promtool that is killed leaves behind.
    environ = os.environ | {"TMPDIR": str(file.parent)}
    command = ["promtool", "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environ)
    said = done.stdout + done.stderr
    head, *failures = re.split(r"\n(?= +(?:expr|alertname): )", said)
    return (failures or [head]) if done.returncode else []


def seconds(duration: str) -> int:
    """A duration as promtool reads and prints it, in whole seconds."""
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([dhms])", duration))


def group_names(rules: Path) -> list[str]:
    """The groups of a file of rules, as they follow each other."""
    return [group["name"] for group in groups_of(rules)]


@cache
def groups_of(rules: Path) -> list[dict[str, Any]]:
    """The groups of a file of rules; read once, and by the C library, which is ten times faster."""
    groups: list[dict[str, Any]] = yaml.load(rules.read_text(), yaml.CSafeLoader)["groups"]
    return groups
