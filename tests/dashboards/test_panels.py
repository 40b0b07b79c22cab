"""What Prometheus answers to the expressions that the panels are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import pytest

from stagewatch.dashboards import panels
from tests.alerts.promtool import needs_promtool, play, series
from tests.dashboards.boards import NAMES, data_panels, load

pytestmark = needs_promtool


def answers(
    directory: Path, expr: str, given: Mapping[str, float], samples: Mapping[str, float]
) -> None:
    """Assert that an expression has exactly these samples, of series that stay as they are."""
    text = panels.expand(expr).replace('"$cluster"', '".*"')
    values = {name: f"{value:g}x15" for name, value in given.items()}
    play(directory, [], values, [(text, "20s", samples)])


def test_a_heat_map_has_a_row_for_each_rank_even_without_any_work() -> None:
    panel = panels.heat_rows("T", "D.", "max by (role, rank) (busy_ratio)", unit="percentunit")
    (target,) = panel.targets
    assert (target.format, target.legendFormat) == ("time_series", "{{role}} {{rank}}")
    assert panel.options["filterValues"] == {}


@pytest.mark.parametrize(
    ("expr", "unit"),
    [
        ("max by (node) (gpu_temperature_celsius{NODE})", "celsius"),
        ("sum(rate(io_disk_bytes_total{NODE}[5m]))", "Bps"),
        ("max(a_seconds{JOB} or b:c:seconds{JOB})", "s"),
        ("count(a_seconds{JOB} > 1)", "short"),
        ("a_bytes{JOB} / b_bytes{JOB}", "short"),
        ("a_seconds{JOB} or b_bytes{JOB}", "short"),
    ],
)
def test_the_unit_of_a_panel_is_that_of_all_its_metrics(expr: str, unit: str) -> None:
    assert panels.unit_of(expr) == unit
    assert panels.timeseries("T", "D.", expr).field["unit"] == unit


@pytest.mark.parametrize(
    ("celsius", "counts"),
    [
        ((21, 22, 36, 99), {"20": 2, "25": 0, "30": 0, "35": 1, "40": 1}),
        ((3,), {"20": 1, "25": 0, "30": 0, "35": 0, "40": 0}),
        ((), {}),
    ],
)
def test_a_distribution_counts_zero_where_no_series_lies_and_nothing_where_none_is_measured(
    celsius: tuple[int, ...], counts: dict[str, int], tmp_path: Path
) -> None:
    panel = panels.distribution(
        "T", "D.", "max by (gpu) (heat_celsius{CLUSTER})", step=5, limits=(20, 40), unit="celsius"
    )
    given = {series("heat_celsius", gpu=gpu): float(each) for gpu, each in enumerate(celsius)}
    samples = {f'{{value="{value}"}}': float(count) for value, count in counts.items()}
    answers(tmp_path, panel.targets[0].expr, given, samples)


def test_shares_are_counted_at_their_tenths(tmp_path: Path) -> None:
    """The texts of the zeros and of the counts are the same: 0.3 is not 0.30000000000000004."""
    panel = panels.distribution(
        "T", "D.", "busy_ratio", step=0.1, limits=(0, 1), unit="percentunit"
    )
    tenths = ("0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1")
    given = {series("busy_ratio", gpu=gpu): float(tenth) for gpu, tenth in enumerate(tenths)}
    samples = {f'{{value="{tenth}"}}': 1.0 for tenth in tenths}
    answers(tmp_path, panel.targets[0].expr, given, samples)


@pytest.mark.parametrize(
    ("errors", "samples"),
    [
        ({"n1": 0.0, "n2": 3.0, "n3": 1.0}, {"n2": 3.0, "n3": 1.0, "all": 4.0}),
        ({"n1": 0.0, "n2": 0.0}, {"all": 0.0}),
        ({}, {}),
    ],
)
def test_of_errors_those_above_zero_are_shown_and_their_sum(
    errors: dict[str, float], samples: dict[str, float], tmp_path: Path
) -> None:
    expr = panels.above_zero("sum by (node) (errors{CLUSTER})", "sum(errors{CLUSTER})", "all")
    given = {series("errors", node=node, cluster="c"): each for node, each in errors.items()}
    answers(tmp_path, expr, given, {f'{{node="{n}"}}': each for n, each in samples.items()})


def test_of_firing_alerts_the_newest_critical_one_is_asked_for_however_many_fire_for_long(
    tmp_path: Path,
) -> None:
    (panel,) = (
        panel for panel in data_panels(load("overview")) if panel["title"] == "Firing alerts"
    )
    (target,) = panel["targets"]
    given: dict[str, float] = {}
    for node in range(60):
        labels = {"alertname": "Old", "severity": "warning", "node": f"n{node}", "cluster": "c"}
        given[series("ALERTS_FOR_STATE", **labels)] = -86400.0 - node
        given[series("ALERTS", **labels, alertstate="firing")] = 1.0
    labels = {"alertname": "New", "severity": "critical", "node": "n0", "cluster": "c"}
    given[series("ALERTS_FOR_STATE", **labels)] = 0.0
    given[series("ALERTS", **labels, alertstate="firing")] = 1.0
    count = f"count by (alertname) ({target['expr']})"
    counts = {'{alertname="New"}': 1.0, '{alertname="Old"}': 49.0}
    answers(tmp_path, count, given, counts)
    assert [each["displayName"] for each in panel["options"]["sortBy"]] == ["Severity", "For"]


def test_a_severity_has_its_colour_wherever_it_is_shown() -> None:
    """As text in tables, as a number over time."""
    coloured = {}
    for name in NAMES:
        for panel in data_panels(load(name)):
            config = panel["fieldConfig"]
            maps = [config["defaults"].get("mappings") or ()]
            for override in config["overrides"]:
                if override["matcher"]["options"] == "Severity":
                    maps += [one["value"] for one in override["properties"][:1]]
            if "severity" in json.dumps(panel["targets"]) and panel["type"] != "stat":
                options = [
                    value for mapping in chain(*maps) for value in mapping["options"].values()
                ]
                coloured[name, panel["title"]] = {one["text"]: one["color"] for one in options}
    assert {("overview", "Firing alerts"), ("overview", "Alerts over time")} < coloured.keys()
    assert all(
        (colours["critical"], colours["warning"]) == ("red", "orange")
        for colours in coloured.values()
    )


def test_an_engine_whose_job_changed_hands_breaks_no_panel(tmp_path: Path) -> None:
    """A join that finds two owners of one address is an error of the whole panel."""
    (expr,) = (
        target["expr"]
        for panel in data_panels(load("engines"))
        for target in panel["targets"]
        if target["expr"].startswith("topk(50, sum by (job_id, user, account) (engine:owner:info")
    )
    here = {"cluster": "c", "node": "n", "instance": "n:1"}
    given = {series("engine:tokens_generated:rate1m", **here, engine="vllm"): 5.0}
    for user in ("a", "b"):
        owner = here | {"job_id": "7", "user": user, "account": "x"}
        given[series("engine:owner:info", **owner)] = 1.0
    samples = {f'{{account="x", job_id="7", user="{user}"}}': 5.0 for user in ("a", "b")}
    answers(tmp_path, expr.replace('"$node"', '".*"'), given, samples)


def test_a_node_of_several_partitions_is_out_of_service_once(tmp_path: Path) -> None:
    out = {
        panel["title"]: panel["targets"][0]["expr"]
        for panel in data_panels(load("slurm-jobs"))
        if panel["type"] == "stat"
    }
    node = {"cluster": "c", "node": "n1", "kind": "down", "reason": "r", "reason_class": "x"}
    given = {series("slurm_node_unavailable_info", **node): 1.0}
    for partition in ("a", "b"):
        each = {"cluster": "c", "partition": partition}
        given[series("slurm_nodes", **each, availability="down")] = 1.0
        given[series("slurm_gpus", **each, gpu_type="h100", state="allocated")] = 8.0
    given[series("slurm_gpus", cluster="c", partition="b", gpu_type="h100", state="free")] = 8.0
    for state in ("allocated", "free"):
        given[series("slurm_cluster_gpus", cluster="c", gpu_type="h100", state=state)] = 8.0
    answers(tmp_path, out["Nodes out of service"], given, {"{}": 1.0})
    answers(tmp_path, out["GPUs allocated"], given, {"{}": 0.5})


def test_the_job_board_says_why_a_panel_is_empty_and_opens_with_what_every_job_has() -> None:
    """Without hooks, a scheduler or counted tokens half of its panels have no data."""
    board = load("job")
    for panel in data_panels(board):
        assert panel["fieldConfig"]["defaults"].get("noValue"), panel["title"]
    shown = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown) <= 64
    first = [panel["title"] for panel in shown[:6]]
    assert first[:2] == ["Ranks alive", "Ranks gone"] and "Firing alerts" in first


def test_the_network_board_begins_with_what_is_wrong() -> None:
    first = next(panel for panel in data_panels(load("network")))
    assert first["title"] == "Links down"


@pytest.mark.parametrize("title", ["Duration", "Age in intervals", "Evaluation over interval"])
def test_stack_health_draws_the_few_worst_of_many_lines(title: str) -> None:
    [panel] = [panel for panel in data_panels(load("stack-health")) if panel["title"] == title]
    assert "topk(8, " in panel["targets"][0]["expr"]
