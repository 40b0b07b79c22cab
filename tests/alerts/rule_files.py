"""The shipped rules as objects: what each records, and what it reads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import promql_parser

from tests.alerts.promtool import ALERTS, groups_of


@dataclass(frozen=True, slots=True)
class Rule:
    """One recording or alerting rule, and where it stands."""

    file: str
    group: str
    interval: str
    """From one evaluation of its group to the next; empty where Prometheus' default holds."""
    position: int
    """Prometheus evaluates the rules of a group in this order, one after the other."""
    name: str
    records: bool
    expression: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def reads(self) -> set[str]:
        """The names of the series that the expression selects."""
        return names_read(self.expression)

    @property
    def ranges(self) -> dict[str, set[float]]:
        """The names of the series of which it reads ranges, and the lengths of these in seconds."""
        lengths: dict[str, set[float]] = defaultdict(set)
        for node in _nodes(self.expression):
            if isinstance(node, promql_parser.MatrixSelector):
                lengths[node.vector_selector.name or ""].add(node.range.total_seconds())
        return lengths

    @property
    def numbers(self) -> set[float]:
        """The numbers that the expression computes or compares with; no shares of quantiles."""
        nodes = _nodes(self.expression)
        shares = [node.param for node in nodes if isinstance(node, promql_parser.AggregateExpr)]
        for node in nodes:
            if isinstance(node, promql_parser.Call) and "quantile" in node.func.name:
                shares += node.args
        numbers, left_out = (
            Counter(node.val for node in some if isinstance(node, promql_parser.NumberLiteral))
            for some in (nodes, shares)
        )
        return set(numbers - left_out)


@cache
def every_rule() -> tuple[Rule, ...]:
    """The rules of all files."""
    return tuple(
        Rule(
            path.name,
            group["name"],
            group.get("interval", ""),
            position,
            rule.get("record") or rule["alert"],
            "record" in rule,
            rule["expr"],
            rule.get("labels", {}),
            rule.get("annotations", {}),
        )
        for path in sorted(ALERTS.glob("*.rules.yaml"))
        for group in groups_of(path)
        for position, rule in enumerate(group["rules"])
    )


def names_read(expression: str) -> set[str]:
    """The names of the series that an expression selects."""
    nodes = _nodes(expression)
    selectors = [node for node in nodes if isinstance(node, promql_parser.VectorSelector)]
    selectors += [
        node.vector_selector for node in nodes if isinstance(node, promql_parser.MatrixSelector)
    ]
    return {selector.name for selector in selectors if selector.name}


def _nodes(expression: str) -> list[Any]:
    nodes: list[Any] = []

    def visit(node: Any) -> bool:
        nodes.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return nodes
