"""The rules of grafana/dashboard-linter, and the house's own, for every committed board."""

from __future__ import annotations

import re

import promql_parser
import pytest

from tests.alerts.rule_files import every_rule
from tests.dashboards import boards

UIDS = {
    "engines": "stagewatch-engines",
    "fault-experiments": "stagewatch-fault-experiments",
    "goodput": "stagewatch-goodput",
    "gpu-health": "stagewatch-gpu-health",
    "job": "stagewatch-job",
    "network": "stagewatch-network",
    "overview": "stagewatch-overview",
    "slurm-jobs": "stagewatch-slurm-jobs",
    "stack-health": "stagewatch-stack-health",
    "stage-timeline": "stagewatch-stage-timeline",
    "storage": "stagewatch-storage",
}
"""Links and bookmarks hold these: they never change."""
RUNBOOK = "${runbooks:raw}/${__value.text}.md"

KINDS = {"row", "text", "stat", "timeseries", "state-timeline", "heatmap", "table", "bargauge"}
every_board = pytest.mark.parametrize("name", boards.NAMES)


def test_uids_never_change() -> None:
    assert {name: boards.load(name)["uid"] for name in boards.NAMES} == UIDS


@every_board
def test_the_schema_is_one_that_grafana_need_not_migrate(name: str) -> None:
    board = boards.load(name)
    assert board["schemaVersion"] >= 39
    assert not {"rows", "style", "sharedCrosshair", "hideControls", "__inputs"} & set(board)
    assert {panel["type"] for panel in boards.panels(board)} <= KINDS


@every_board
def test_no_panel_overlaps_another_or_leaves_the_grid(name: str) -> None:
    board = boards.load(name)
    groups = [board["panels"], *(panel.get("panels", ()) for panel in board["panels"])]
    for group in groups:
        taken: dict[tuple[int, int], str] = {}
        for panel in group:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24, panel["title"]
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert (x, y) not in taken, (panel["title"], taken[x, y])
                    taken[x, y] = panel["title"]


@every_board
def test_every_panel_says_what_it_shows(name: str) -> None:
    for panel in boards.panels(boards.load(name)):
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]


@every_board
def test_every_panel_has_a_unit_that_fits(name: str) -> None:
    for panel in boards.data_panels(boards.load(name)):
        units = [panel["fieldConfig"]["defaults"].get("unit")] + [
            item["value"]
            for override in panel["fieldConfig"]["overrides"]
            for item in override["properties"]
            if item["id"] == "unit"
        ]
        assert any(units), panel["title"]
        for target in panel["targets"]:
            expr = target["expr"]
            if panel["type"] == "table" or expr.startswith(("count", "sum(count")):
                continue
            unit = units[0]
            if re.match(r"\w+( by \([^)]*\))? ?\((?:rate\()?\w+_bytes(_total)?\b", expr):
                assert unit in ("bytes", "Bps"), (panel["title"], unit)
            if re.match(r"\w+( by \([^)]*\))? ?\(\w+_celsius\b", expr):
                assert unit == "celsius", (panel["title"], unit)
            if re.match(r"\w+( by \([^)]*\))? ?\(\w+_ratio\b", expr):
                assert unit == "percentunit", (panel["title"], unit)
            if re.match(r"\w+( by \([^)]*\))? ?\((?!rate)\w+_seconds\{", expr):
                assert unit == "s", (panel["title"], unit)


@every_board
def test_every_expression_is_promql(name: str) -> None:
    for query in boards.all_queries(name):
        promql_parser.parse(boards.filled(query.expr))


@every_board
def test_rates_follow_the_width_of_the_panel(name: str) -> None:
    for panel in boards.data_panels(boards.load(name)):
        for target in panel["targets"]:
            for window in re.findall(r"\b(?:rate|irate|deriv)\([^[]*\[([^]]+)]", target["expr"]):
                assert window == "$__rate_interval", (panel["title"], window)


@every_board
def test_counters_are_never_shown_raw(name: str) -> None:
    for panel in boards.data_panels(boards.load(name)):
        if panel["type"] == "table":
            continue  # counts since boot, of things that should be none
        for target in panel["targets"]:
            raw = re.sub(r"(?:rate|increase)\([^()]*\[[^]]+](?: @ end\(\))?\)", "", target["expr"])
            assert not re.search(r"_total\b", raw), (panel["title"], raw)


def test_every_state_of_a_gpu_has_its_colour_on_the_board_goodput() -> None:
    rules = [rule for rule in every_rule() if rule.file == "goodput.rules.yaml"]
    states = {rule.labels["state"] for rule in rules if "state" in rule.labels}
    (panel,) = (
        each
        for each in boards.data_panels(boards.load("goodput"))
        if each["title"].startswith("All GPUs")
    )
    matchers = [each["matcher"]["options"].strip("/") for each in panel["fieldConfig"]["overrides"]]
    assert "stalled" in states
    assert {state for state in states if not any(re.search(m, state) for m in matchers)} == set()


@every_board
def test_variables_are_defined_in_order_and_used(name: str) -> None:
    board = boards.load(name)
    defined = [variable["name"] for variable in board["templating"]["list"]]
    order = ["datasource", "cluster", "partition", "node", "gpu", "job_id", "runbooks"]
    assert defined == [each for each in order if each in defined]
    texts = [query.expr for query in boards.all_queries(name)]
    texts += ["$runbooks"] * (RUNBOOK in str(board["panels"]))
    # "$1" is a group of label_replace: Grafana leaves what is no variable as it is.
    used = {found for text in texts for found in re.findall(r"\$([a-zA-Z_]\w*)", text)}
    used -= {found for found in used if found.startswith("__")}
    assert used == set(defined) - {"datasource"}


@every_board
def test_links_from_cells_lead_to_boards_that_exist(name: str) -> None:
    for panel in boards.data_panels(boards.load(name)):
        for override in panel["fieldConfig"]["overrides"]:
            for item in override["properties"]:
                for link in item["value"] if item["id"] == "links" else ():
                    if link["url"] == RUNBOOK:
                        assert override["matcher"]["options"] == "Alert"
                        continue
                    uid = link["url"].removeprefix("/d/").partition("?")[0]
                    assert uid in UIDS.values(), link
                    assert "${__url_time_range}" in link["url"]


@every_board
def test_tables_place_and_link_the_columns_that_their_queries_return(name: str) -> None:
    """Grafana says nothing about an override or a place of a column that is not there."""
    for panel in boards.data_panels(boards.load(name)):
        if panel["type"] != "table":
            continue
        merge, organize = panel["transformations"]
        assert (merge["id"], organize["id"]) == ("merge", "organize")
        texts = organize["options"]["renameByName"]
        fields = {f"Value #{target['refId']}" for target in panel["targets"]}
        for target in panel["targets"]:
            labels = re.search(r"by \(([^)]*)\)", target["expr"])
            assert labels, target["expr"]
            fields |= set(labels[1].split(", "))
        columns = {texts.get(field, field) for field in fields}
        placed = {texts.get(field, field) for field in organize["options"]["indexByName"]}
        assert placed == columns, panel["title"]
        overrides = panel["fieldConfig"]["overrides"]
        used = {override["matcher"]["options"] for override in overrides}
        used |= {each["displayName"] for each in panel["options"]["sortBy"]}
        assert used <= columns, panel["title"]
        linked = [each["matcher"]["options"] for each in overrides if RUNBOOK in str(each)]
        assert linked == ["Alert"] * ("alertname" in fields), panel["title"]


@every_board
def test_alerts_that_only_hold_back_others_are_not_counted(name: str) -> None:
    """Those with the label notify go to nobody (alerts/slurm.rules.yaml)."""
    for query in boards.all_queries(name):
        for selector in re.findall(r"\bALERTS(?:_FOR_STATE)?\{[^}]*\}", query.expr):
            assert 'notify=""' in selector, str(query)


@every_board
def test_annotations_show_faults_detection_and_recovery(name: str) -> None:
    listed = boards.load(name)["annotations"]["list"]
    assert [each["name"] for each in listed] == [
        "Faults injected",
        "Alerts",
        "Nodes back",
        "Jobs back",
    ]
    for each, query in zip(listed, boards.annotation_queries(name), strict=True):
        assert each["target"]["expr"] == query.expr
        assert each["target"]["interval"] == each["step"] == "10s"
        grouped = query.expr.partition("(")[2].partition(")")[0].split(", ")
        named = re.findall(r"{{(\w+)}}", each["titleFormat"] + each["textFormat"])
        assert set(named) | set(each["tagKeys"].split(",")) <= set(grouped), each["name"]


@every_board
def test_series_names_use_labels_that_the_query_keeps(name: str) -> None:
    for panel in boards.data_panels(boards.load(name)):
        for target in panel["targets"]:
            kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))
            kept |= set(re.findall(r'count_values\("(\w+)"', target["expr"]))
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert named <= kept, (panel["title"], named - kept)
