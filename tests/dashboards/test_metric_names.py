"""Every metric that a board or a rule names exists: in the code, a rule, or a named exporter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.dashboards.boards import NAMES, ROOT, all_queries, filled
from tests.dashboards.cardinality import declared
from tests.fakes.engine import series_names

RULE_FILES = sorted((ROOT / "alerts").glob("*.rules.yaml"))

OF_PROMETHEUS = {
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "ALERTS",
    "ALERTS_FOR_STATE",
    "prometheus_rule_group_last_duration_seconds",
    "prometheus_rule_group_interval_seconds",
    "prometheus_rule_group_iterations_missed_total",
    "prometheus_rule_evaluation_failures_total",
    "prometheus_tsdb_head_series",
    "prometheus_notifications_alertmanagers_discovered",
    "prometheus_notifications_dropped_total",
    "prometheus_notifications_errors_total",
}
OF_THE_PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
OF_THE_SITE = {"site:limit:value"}
"""Recorded by rules of its own, where it has any (docs/tuning.md)."""
OF_NODE_EXPORTER = {
    "node_cpu_seconds_total",
    "node_netstat_Tcp_CurrEstab",
    "node_netstat_Tcp_OutSegs",
    "node_netstat_Tcp_RetransSegs",
    "node_network_carrier",
    "node_network_carrier_changes_total",
    "node_network_receive_bytes_total",
    "node_network_receive_drop_total",
    "node_network_receive_errs_total",
    "node_network_transmit_bytes_total",
    "node_network_transmit_drop_total",
    "node_network_transmit_errs_total",
}


def rules(path: Path) -> list[dict[str, Any]]:
    """The rules of a file."""
    groups = yaml.load(path.read_text(), yaml.CSafeLoader)["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def known() -> set[str]:
    recorded = {rule["record"] for path in RULE_FILES for rule in rules(path) if "record" in rule}
    outside = OF_PROMETHEUS | OF_THE_PROCESS | OF_THE_SITE | OF_NODE_EXPORTER
    outside |= series_names()
    return set(declared()) | recorded | outside


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_on_a_board_exists(name: str, known: set[str]) -> None:
    for query in all_queries(name):
        assert set(_names(filled(query.expr))) <= known, str(query)


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_every_metric_in_a_rule_exists(path: Path, known: set[str]) -> None:
    for rule in rules(path):
        outside = {name for name in _names(rule["expr"]) if not name.startswith("DCGM_")}
        assert outside <= known, rule.get("alert") or rule.get("record")


def _names(expression: str) -> Iterator[str]:
    """The names of the metrics in an expression."""
    found: list[str | None] = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node.name)
        elif isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector.name)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return (name for name in found if name)  # none where a pattern stands for many
