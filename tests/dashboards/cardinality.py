"""How many series a query may return on a large cluster, by the labels of what it asks for.

A bound, not a count: the labels of a metric stand in its declaration (those of a recorded series
follow from its rule), `VALUES` says how many values a label has, and each operator of PromQL is
followed.  `topk` binds a range query only where it chooses at one moment (`@ end()`): else each
step of the range may choose others.
"""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser as promql

import stagewatch
from stagewatch.core.exposition import Metric
from tests.alerts.rule_files import every_rule
from tests.dashboards.boards import Query, filled

NODES, GPUS, RANKS = 1024, 8, 8
_LABELS = {
    NODES * RANKS: "peer pid rank serial uuid",
    NODES: (
        "array_job_id directory file frame group instance job_id job_name lacks node path "
        "peers target_worker"
    ),
    200: "alertname",
    100: "type",
    64: "for_rank limit name rack reason",
    60: "rule_group",
    50: "account uid user",
    45: "collector",
    32: "id meaning sxid xid",
    30: "flag op",
    24: "pattern",
    20: "le",
    18: "link",
    16: "action error evidence exit_class fault_type process ranks state through words",
    12: "class code expected_failure_stage how source stage substage witness",
    9: "device port",
    8: (
        "condition dp_rank engine excuse family gpu gpus kind local_rank minor partition "
        "pci_bus_id reason_class scenario target vbios"
    ),
    7: "mig",
    6: "phase spares",
    4: (
        "address availability board domain export firmware for_role framework fstype host "
        "mount mount_point namespace operation python role server tier unit version "
        "world_size"
    ),
    3: "driver every gpu_type model part resource severity what",
    2: (
        "alertstate beside by cause confidence direction job layer link_layer memory mode "
        "place precision protocol scheduler scope side"
    ),
    1: "cluster model_name notify",
}
"""Labels by the number of their values, always the worst case, such as each node in its own job."""
VALUES = {label: count for count, labels in _LABELS.items() for label in labels.split()}
_OF_TARGET = ("cluster", "node", "job", "partition", "rack")
_OF_OTHERS = {
    "": ("gpu", "uuid"),
    "up": ("instance",),
    "ALERTS": ("alertname", "alertstate", "severity", "gpu", "job_id", "rank", "role", "mount"),
}
_OF_THE_CLUSTER = ("slurm_", "prometheus_")
"""Series of targets that are no node."""


TOLD_BY = {
    "fault_type": "id",
    "target_worker": "id",
    "expected_failure_stage": "id",
    "scenario": "id",
    "action": "xid",
    "meaning": "xid",
    "server": "mount",
    "export": "mount",
    "version": "mount",
    "rack": "node",
    "severity": "alertname",
    "protocol": "mount",
    "user": "job_id",
    "model": "instance",
}
"""Labels that have one value for each value of another one."""


def _product(values: Mapping[str, int]) -> int:
    return math.prod(n for label, n in values.items() if TOLD_BY.get(label) not in values)


@dataclass(frozen=True)
class Bound:
    """At most `count` series, whose labels have at most so many values."""

    count: int
    values: dict[str, int]

    def by(self, labels: set[str]) -> Bound:
        """The groups that these labels make of it."""
        kept = {label: n for label, n in self.values.items() if label in labels}
        return Bound(min(self.count, _product(kept)), kept)


ONE = Bound(1, {})
_CHOOSING = ("MatchOp.Equal", "MatchOp.Re")


def labels_of(name: str) -> dict[str, int]:
    """The labels of a series, and how many values each has on the large cluster."""
    return _labels(name, _recorded())


def most_series(query: Query) -> int:
    """The most series of a query of a board with All chosen, and one job."""
    expression = promql.parse(filled(query.expr, job_id="1"))
    return _Follower(_recorded(), query.instant).bound(expression).count


@dataclass(frozen=True)
class _Follower:
    """Follows an expression, with the labels of recorded series as far as they are in hand."""

    recorded: Mapping[str, dict[str, int]]
    instant: bool

    def bound(self, node: Any) -> Bound:
        """The most that an expression may return."""
        again = self.bound
        match node:
            case promql.VectorSelector():
                return self._selected(node)
            case promql.MatrixSelector():
                return self._selected(node.vector_selector)
            case promql.NumberLiteral() | promql.StringLiteral():
                return ONE
            case promql.Call():
                return _called(node, [again(each) for each in node.args])
            case promql.AggregateExpr():
                return self._aggregated(node, again(node.expr))
            case promql.BinaryExpr():
                return _joined(node, again(node.lhs), again(node.rhs))
            case _:
                return again(node.expr)

    def _selected(self, selector: Any) -> Bound:
        values = dict(_labels(selector.name, self.recorded))
        for matcher in selector.matchers.matchers:
            chosen = re.fullmatch(r"[\w|-]*", matcher.value)
            if chosen and matcher.name in values and str(matcher.op) in _CHOOSING:
                values[matcher.name] = matcher.value.count("|") + 1
        return Bound(_product(values), values)

    def _aggregated(self, node: Any, inner: Bound) -> Bound:
        operator, modifier = str(node.op), node.modifier
        named = set(modifier.labels) if modifier else set()
        without = modifier is not None and str(modifier.type).endswith("Without")
        groups = inner.by(set(inner.values) - named if without else named)
        if operator in ("topk", "bottomk"):
            if self.instant or _at_one_moment(node.expr):
                return Bound(min(inner.count, int(node.param.val) * groups.count), inner.values)
            return inner
        if operator == "count_values":
            values = _steps(node.expr) or inner.count
            return Bound(groups.count * values, groups.values | {node.param.val: values})
        return groups


def _called(call: Any, bounds: list[Bound]) -> Bound:
    name = call.func.name
    if name in ("vector", "scalar", "time", "absent"):
        return ONE
    bound = max(bounds, key=lambda each: each.count)
    if name == "histogram_quantile":
        return bound.by(set(bound.values) - {"le"})
    if name == "label_replace":
        to, source = call.args[1].val, call.args[3].val
        return Bound(bound.count, bound.values | {to: bound.values.get(source, 1)})
    return bound


def _steps(node: Any) -> int | None:
    """How many values `round(clamp(x, low, high), step)` has, which bounds `count_values`."""
    match node:
        case promql.Call(func=outer, args=[promql.Call(func=inner, args=[_, low, high]), step]):
            if (outer.name, inner.name) == ("round", "clamp"):
                return round((high.val - low.val) / step.val) + 1
    return None


def _at_one_moment(node: Any) -> bool:
    found: list[bool] = []

    def visit(each: Any) -> bool:
        if isinstance(each, promql.VectorSelector):
            found.append(each.at is not None)
        elif isinstance(each, promql.MatrixSelector):
            found.append(each.vector_selector.at is not None)
        return True

    promql.walk(node, visit)
    return all(found)


def _joined(node: Any, left: Bound, right: Bound) -> Bound:
    operator, modifier = str(node.op), node.modifier
    if operator == "or":
        values = {
            label: max(left.values.get(label, 1), right.values.get(label, 1))
            for label in {*left.values, *right.values}
        }
        return Bound(left.count + right.count, values)
    if operator == "unless" or not right.values:
        return left
    if not left.values:
        return right
    matching = modifier.matching if modifier else None
    every = set(left.values) | set(right.values)
    if matching is None:
        keys = every
    elif str(matching.type).endswith("Include"):
        keys = set(matching.labels)
    else:
        keys = every - set(matching.labels)
    card = str(modifier.card) if modifier else ""
    if operator == "and" or card.endswith("ManyToOne"):
        many, one = left, right
    elif card.endswith("OneToMany"):
        many, one = right, left
    else:
        return Bound(min(left.count, right.count), left.by(keys).values)
    rest = math.prod(
        n
        for label, n in many.values.items()
        if label not in keys and TOLD_BY.get(label) not in many.values
    )
    values = dict(many.values)
    if operator != "and":
        added = getattr(modifier.card, "labels", None) or modifier.group_labels or ()
        values |= {label: one.values.get(label, 1) for label in getattr(added, "labels", added)}
    return Bound(min(many.count, one.count * rest), values)


@functools.cache
def declared() -> dict[str, tuple[str, ...]]:
    """The labels of every metric of the code, histograms by the names of their series."""
    labels: dict[str, tuple[str, ...]] = {}
    for module in pkgutil.walk_packages(stagewatch.__path__, "stagewatch."):
        if module.name.startswith("stagewatch.client.hooks") or module.name.endswith(
            (".__main__", ".child", ".janitor")
        ):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            for item in value.values() if isinstance(value, dict) else (value,):
                if not isinstance(item, Metric):
                    continue
                if item.kind != "histogram":
                    labels[item.name] = item.labels
                    continue
                labels |= {f"{item.name}_{part}": item.labels for part in ("count", "sum")}
                labels[f"{item.name}_bucket"] = (*item.labels, "le")
    return labels


@functools.cache
def _recorded() -> dict[str, dict[str, int]]:
    """The labels of every recorded series: of its rules, until none of them adds another."""
    rules = [rule for rule in every_rule() if rule.records]
    parsed = [(rule, promql.parse(rule.expression)) for rule in rules]
    recorded: dict[str, dict[str, int]] = {rule.name: {} for rule in rules}
    more = True
    while more:
        more = False
        for rule, expression in parsed:
            values = recorded[rule.name]
            bound = _Follower(recorded, instant=True).bound(expression)
            given = {label: VALUES[label] for label in rule.labels}
            for label, n in (bound.values | given).items():
                if n > values.get(label, 0):
                    values[label] = n
                    more = True
    return recorded


def _labels(name: str | None, recorded: Mapping[str, dict[str, int]]) -> dict[str, int]:
    """The labels of a series, and how many values each has."""
    name = name or ""  # where a pattern stands for many, all of them of GPUs (DCGM's)
    also = recorded.get(name, {})
    if name in recorded and name not in declared():
        return also
    if name in declared():
        labels = declared()[name]
    elif name.startswith("node_network_"):
        labels = ("device",)
    elif name.startswith("prometheus_rule_"):
        labels = ("rule_group",)
    elif name.startswith(("vllm:", "sglang:")):
        labels = ("instance", "engine", "dp_rank", "model_name", "le")
    else:
        labels = _OF_OTHERS.get("ALERTS" if name == "ALERTS_FOR_STATE" else name, ())
    whole = name.startswith(_OF_THE_CLUSTER)
    target = [label for label in _OF_TARGET if not (whole and label in ("node", "rack"))]
    return also | {label: VALUES[label] for label in (*target, *labels)}
