"""The collector's configuration, as far as it can be read without one: none installs here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.rule_files import every_rule
from tests.deploy.engine import ROOT, need
from tests.running import output

STABLE = {"service.namespace", "k8s.cluster.name", "k8s.node.name"}
"""Of what is set here; opentelemetry.semconv.attributes 0.66b2 has all of them."""


@pytest.fixture(scope="module")
def collector() -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "deploy" / "otel" / "collector.yaml").read_text())
    assert isinstance(content, dict)
    return content


def test_the_pipeline_names_what_there_is(collector: dict[str, Any]) -> None:
    for pipeline in collector["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= set(collector[kind])


def test_it_scrapes_as_prometheus_would(collector: dict[str, Any], tmp_path: Path) -> None:
    need("promtool")
    scraped = collector["receivers"]["prometheus"]["config"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(scraped))
    output("promtool", "check", "config", tmp_path / "prometheus.yml")
    jobs = [job["job_name"] for job in scraped["scrape_configs"]]
    assert jobs == ["stagewatch", "stagewatch-slurm", "stagewatch-judge"]


def test_only_stable_names_are_set(collector: dict[str, Any]) -> None:
    set_here = {
        attribute["key"]
        for name, processor in collector["processors"].items()
        if name.partition("/")[0] == "resource"
        for attribute in processor["attributes"]
    }
    assert set_here == STABLE


def test_rules_stay_below_the_limits_that_the_page_gives_for_mimir() -> None:
    page = (ROOT / "deploy" / "scale" / "README.md").read_text()
    assert "-ruler.max-rules-per-rule-group=150" in page
    groups = Counter((rule.file, rule.group) for rule in every_rule())
    assert len(groups) <= 70  # Mimir's own limit
    assert max(groups.values()) <= 150
