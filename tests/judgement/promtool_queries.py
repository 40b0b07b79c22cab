"""What a Prometheus with the shipped rules answers over made-up series, evaluated by promtool."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from stagewatch.prometheus.api import Series
from tests.alerts.promtool import ALERTS, group_names, seconds

Found = TypeVar("Found")
_TOLD = re.compile(
    r'^ {4}expr: ("(?:[^"\\]|\\.)*"), time: ([\dhms]+),?\n +exp: .*\n +got: (.*)$', re.MULTILINE
)
_LABELS = r'\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}'
_ONE = re.compile(rf"(?:^|, )[\w:]*((?:{_LABELS})?) ([^\s,]+)")
_LABEL = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')
_NOBODY = [{"labels": "nobody", "value": 0}]
"""What is expected of each expression, so that promtool tells what it is instead."""


class PromtoolQueries:
    """A server that answers once `ask` has come to an end."""

    def __init__(
        self,
        directory: Path,
        rules: Sequence[str | Path],
        given: Mapping[str, str],
        interval: str = "15s",
    ) -> None:
        """`rules` are files of `alerts/`, or any by their whole path."""
        self._directory = directory
        self._rules = [str(ALERTS / name) for name in rules]
        self._given = [{"series": name, "values": values} for name, values in given.items()]
        self._interval = interval
        self._answers: dict[tuple[str, int], list[Series]] = {}
        self._asked: set[tuple[str, int]] = set()

    def ask(self, questions: Callable[[], Found]) -> Found:
        """What questions lead to: asked again, until all that they ask is answered."""
        while True:
            found = questions()
            if not self._asked:
                return found
            self._answer()

    def query(self, expression: str, at: float | None = None) -> list[Series]:
        """The series of an instant vector; before the beginning there are none."""
        assert at is not None
        key = expression, round(at)
        if at >= 0 and key not in self._answers:
            self._asked.add(key)
        return self._answers.get(key, [])

    def _answer(self) -> None:
        asked = [
            {"expr": expression, "eval_time": f"{at}s", "exp_samples": _NOBODY}
            for expression, at in sorted(self._asked)
        ]
        test = {"interval": self._interval, "input_series": self._given, "promql_expr_test": asked}
        file = self._directory / "queries.test.yaml"
        order = [group for rules in self._rules for group in group_names(Path(rules))]
        content = {
            "rule_files": self._rules,
            "evaluation_interval": self._interval,
            "group_eval_order": order,
        }
        file.write_text(json.dumps(content | {"tests": [test]}))
        command = ["promtool", "test", "rules", str(file)]
        environ = os.environ | {"TMPDIR": str(self._directory)}
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=250)
        said = done.stdout + done.stderr
        told = {
            (json.loads(expression), seconds(at)): [
                Series(
                    {name: json.loads(text) for name, text in _LABEL.findall(labels)}, float(value)
                )
                for labels, value in (() if got == "nil" else _ONE.findall(got))
            ]
            for expression, at, got in _TOLD.findall(said)
        }
        assert self._asked <= told.keys(), said
        self._answers |= told
        self._asked.clear()
