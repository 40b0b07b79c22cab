"""The rules on inference engines in a real Prometheus, which scrapes engines that move and hang."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from stagewatch.core.processes import Children
from stagewatch.prometheus.api import PrometheusApi
from tests.alerts.promtool import ALERTS
from tests.deploy.store import Prometheus
from tests.fakes.engine import FakeEngine
from tests.waiting import wait_for

RULES = ("limits", "slurm", "engines")
PROMETHEUS = ALERTS.parent / "deploy" / "prometheus"
GLOBAL = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
SITE = """\
groups:
  - name: site
    rules: [{record: site:limit:value, labels: {limit: engine_silent_seconds}, expr: vector(62)}]
"""


def hastened(rules: str) -> str:
    """The shipped rules with seconds for intervals, the shortest window and waits."""
    rules = re.sub(r"interval: \d+s", "interval: 1s", rules)
    return rules.replace("[1m]", "[5s]").replace("for: 1m\n", "for: 2s\n")


@pytest.fixture
def slurm() -> Iterator[str]:
    """The address of what a Slurm agent would tell of job 7, alone on its node."""
    registry = CollectorRegistry()
    labels = ("job_id", "array_job_id", "user", "account", "partition")
    Gauge("slurm_job_info", "", labels, registry=registry).labels("7", "", "ann", "rl", "g").set(1)
    Gauge("slurm_job_node", "", ("node", "job_id", "gpus"), registry=registry).labels(
        "n1", "7", "0-3"
    ).set(1)
    server, _ = start_http_server(0, "127.0.0.1", registry)
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def engines() -> Iterator[dict[str, FakeEngine]]:
    """One engine of each kind."""
    made = {kind: FakeEngine(kind) for kind in ("vllm", "sglang")}
    yield made
    for engine in made.values():
        engine.close()


@pytest.fixture
def api(
    tmp_path: Path, engines: dict[str, FakeEngine], slurm: str, children: Children
) -> PrometheusApi:
    """A Prometheus with the shipped rules, which scrapes both engines."""
    for name in RULES:
        (tmp_path / f"{name}.rules.yaml").write_text(
            hastened((ALERTS / f"{name}.rules.yaml").read_text())
        )
    (tmp_path / "site.rules.yaml").write_text(SITE)
    shipped = yaml.safe_load((PROMETHEUS / "engines.yml").read_text())["scrape_configs"]
    for job in shipped:
        kind, node = {"vllm": ("vllm", "n1"), "sglang": ("sglang", "n2")}[job["job_name"]]
        target = {"targets": [engines[kind].address], "labels": {"cluster": "c", "node": node}}
        job |= {"static_configs": [target], "scrape_interval": "1s", "scrape_timeout": "1s"}
        del job["http_sd_configs"]
    agent = {"targets": [slurm], "labels": {"cluster": "c"}}
    jobs = [
        *shipped,
        {"job_name": "stagewatch-slurm", "honor_labels": True, "static_configs": [agent]},
    ]
    config = {"global": GLOBAL, "rule_files": ["*.rules.yaml"], "scrape_configs": jobs}
    return PrometheusApi(Prometheus(children, tmp_path, json.dumps(config)).url)


def test_an_engine_that_hangs_is_named_with_its_job_until_it_goes_on(
    api: PrometheusApi, engines: dict[str, FakeEngine]
) -> None:
    """vLLM hangs while SGLang goes on; then it sleeps, which is no hang."""
    vllm, sglang = engines["vllm"], engines["sglang"]

    def engines_of(expression: str) -> set[str]:
        return {series.labels["engine"] for series in api.query(expression)}

    for engine in engines.values():
        engine.hold(running=35, waiting=115, used=0.99)
        engine.working.set()
    for record in (
        "engine:tokens_generated:rate1m > 0",
        "engine:tokens_prefilled:rate1m > 0",
        "engine:requests_running:count == 35",
        "engine:requests_waiting:count == 115",
        "engine:kv_cache_used:ratio > 0.98",
        "engine:preemptions:rate5m == 0",
        "engine:time_to_first_token:p95_seconds < 0.05",
        "engine:inter_token_latency:p95_seconds < 0.05",
    ):
        wait_for(lambda record=record: engines_of(record) == {"vllm", "sglang"}, record)
    silent = "engine:requests_held_silently:count"
    wait_for(lambda: engines_of(silent) == set(), "both work")

    vllm.working.clear()
    wait_for(lambda: engines_of(silent) == {"vllm"}, "vLLM is silent")
    firing = 'ALERTS{alertname="EngineHoldsRequestsYieldsNothing", alertstate="firing"}'
    wait_for(lambda: api.query(firing), "the alert")
    (alert,) = api.query(firing)
    told = {name: alert.labels.get(name) for name in ("node", "job_id", "user", "account", "model")}
    assert told == {
        "node": "n1", "job_id": "7", "user": "ann", "account": "rl", "model": "Qwen/Qwen3-8B",
    }  # fmt: skip
    assert engines_of("engine:tokens_generated:rate1m > 0") == {"sglang"}

    vllm.working.set()
    wait_for(lambda: engines_of(silent) == set() and not api.query(firing), "it goes on")

    for engine in engines.values():
        engine.working.clear()
    wait_for(lambda: engines_of(silent) == {"vllm", "sglang"}, "both hang")
    vllm.sleep(True)
    sglang.hold(running=0, waiting=0)
    wait_for(lambda: engines_of(silent) == set(), "one sleeps, one has nothing to do")
