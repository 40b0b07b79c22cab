"""Every metric that a board or a rule names exists: in the code, a rule, or a named exporter."""

from __future__ import annotations

import pytest

from tests.alerts.rule_files import every_rule, names_read
from tests.dashboards.boards import NAMES, all_queries, filled
from tests.dashboards.cardinality import declared
from tests.fakes.engine import series_names

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


@pytest.fixture(scope="module")
def known() -> set[str]:
    recorded = {rule.name for rule in every_rule() if rule.records}
    outside = OF_PROMETHEUS | OF_THE_PROCESS | OF_THE_SITE | OF_NODE_EXPORTER
    outside |= series_names()
    return set(declared()) | recorded | outside


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_on_a_board_exists(name: str, known: set[str]) -> None:
    for query in all_queries(name):
        assert names_read(filled(query.expr)) <= known, str(query)


def test_every_metric_in_a_rule_exists(known: set[str]) -> None:
    for rule in every_rule():
        assert {name for name in rule.reads if not name.startswith("DCGM_")} <= known, rule.name
