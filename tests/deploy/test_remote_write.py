"""deploy/scale: a real Prometheus writes to a real VictoriaMetrics, and nothing is lost.

The last test wants more than a minute of data, which is gathered while the others run.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from stagewatch.demo.sync_stall import RECORDINGS
from tests.alerts.rule_files import every_rule
from tests.dashboards.boards import NAMES, all_queries, filled
from tests.deploy.engine import ROOT
from tests.deploy.store import MISSING, Pages, Prometheus, Store
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"needs on the PATH: {', '.join(MISSING)}"),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("remote_write"),
]

SCALE = ROOT / "deploy" / "scale"
EXPOSITION = ROOT / "tests" / "fixtures" / "dcgm" / "exposition.prom"
NODES = tuple(f"node-{number}" for number in range(8))
OUTAGE_SAMPLES = 30
"""How many scrapes of each node the store misses."""


@pytest.fixture
def fleet() -> Iterator[Pages]:
    """Eight nodes that count their scrapes, and the service discovery that lists them."""
    counts = {node: itertools.count(1) for node in NODES}

    def page(node: str) -> str:
        counter = f"# TYPE scrapes_total counter\nscrapes_total {next(counts[node])}\n"
        return counter + EXPOSITION.read_text()

    def groups() -> str:
        return json.dumps(
            [
                {
                    "targets": [pages.address],
                    "labels": {
                        "cluster": "a",
                        "node": node,
                        "__metrics_path__": f"/{node}",
                        "__meta_slurm_partitions": ",train,",
                    },
                }
                for node in NODES
            ]
        )

    pages = Pages(
        {f"/{node}": lambda node=node: page(node) for node in NODES}
        | {"/sd/stagewatch": groups, "/metrics": lambda: ""}
    )
    yield pages
    pages.close()


@pytest.fixture
def store(children: Children, tmp_path: Path) -> Store:
    return Store(children, tmp_path)


@pytest.fixture(scope="module", autouse=True)
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Store]]:
    """A Prometheus over an agent of two GPUs, and the store it writes to, from the beginning on."""
    directory = tmp_path_factory.mktemp("both")
    with Children() as children:
        agent = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "stagewatch.cli", "node", "--listen", agent]
        command += ["--record-dir", str(directory), "--no-ranks-by-environment"]
        command += ["--collector.gpu.recording", str(RECORDINGS / "h200-node-a.jsonl")]
        children.start(command, log=directory / "agent.log")
        store = Store(children, directory)
        content = yaml.safe_load(configuration("remote-write.yml", agent, store))
        del content["global"]["external_labels"]  # Prometheus adds them to what it sends only
        content["scrape_configs"] = [
            {
                "job_name": "stagewatch",
                "static_configs": [{"targets": [agent], "labels": {"cluster": "a", "node": "n1"}}],
            }
        ]
        text = str(yaml.safe_dump(content))
        yield Prometheus(children, directory / "prometheus", text), store


def configuration(name: str, agent: str, store: Store, *, shard: int = 0, every: str = "1s") -> str:
    """A file of deploy/scale with our addresses, the Slurm agent's and the store's; `every` is the
    interval of its scrapes."""
    text = (SCALE / name).read_text()
    text = text.replace("store:8428", store.url.removeprefix("http://"))
    text = text.replace("slurm-agent:9948", agent).replace("judge:9949", agent)
    content = yaml.safe_load(text.replace('"0"', f'"{shard}"') if shard else text)
    content["global"] |= {"scrape_interval": every, "scrape_timeout": every}
    if "rule_files" in content:
        content["global"]["evaluation_interval"] = "1s"
        content["rule_files"] = [f"{ROOT}/alerts/*.rules.yaml"]
    for job in content["scrape_configs"]:
        for discovery in job.get("http_sd_configs", ()):
            discovery["refresh_interval"] = "1s"
    return str(yaml.safe_dump(content))


def test_an_outage_of_the_store_loses_no_sample(
    children: Children, tmp_path: Path, fleet: Pages, store: Store
) -> None:
    text = configuration("remote-write.yml", fleet.address, store, every="200ms")
    prometheus = Prometheus(children, tmp_path / "prometheus", text)
    selector = 'scrapes_total{job="stagewatch"}'
    wait_for(lambda: len(store.samples(selector)) == len(NODES), "the store has every node")
    store.stop()
    before = {node: len(each) for node, each in prometheus.samples(selector).items()}

    def missed() -> bool:
        now = prometheus.samples(selector)
        return all(len(now[node]) >= before[node] + OUTAGE_SAMPLES for node in NODES)

    wait_for(missed, f"{OUTAGE_SAMPLES} more scrapes", limit=300)
    scraped = prometheus.samples(selector)
    store.start()

    def lost() -> dict[str, set[float]]:
        held = store.samples(selector)
        return {node: scraped[node].keys() - held.get(node, {}).keys() for node in NODES}

    # Older samples may come after newer ones: they are sent by several at a time.
    wait_for(lambda: not any(lost().values()), "the store has every sample", limit=180)
    held = store.samples(selector)
    assert all(scraped[node].items() <= held[node].items() for node in NODES)


def test_every_node_is_scraped_by_exactly_one_shard(
    children: Children, tmp_path: Path, fleet: Pages, store: Store
) -> None:
    shards = [
        Prometheus(
            children, tmp_path / f"shard-{number}",
            configuration("shard.yml", fleet.address, store, shard=number), agent=True,
        )
        for number in range(2)
    ]  # fmt: skip

    def scraped() -> list[list[str]]:
        return [shard.targets("stagewatch") for shard in shards]

    def everything() -> list[str]:
        return [node for shard in scraped() for node in shard]

    wait_for(lambda: len(everything()) >= len(NODES), "the shards scrape every node")
    assert sorted(everything()) == sorted(NODES)
    assert all(scraped())
    wait_for(
        lambda: len(store.query('up{job="stagewatch"} == 1')) == len(NODES), "the store has all"
    )
    assert all("shard" not in each["metric"] for each in store.query("up"))
    assert len(store.query('up{job="stagewatch-slurm"}')) == 1
    assert len(store.query('up{job="stagewatch-judge"}')) == 1


def rules_for_old_vmalert(directory: Path) -> Path:
    """The rules without what vmalert knows from 1.89 on; Debian 12 has 1.79."""
    for file in (ROOT / "alerts").glob("*.rules.yaml"):
        lines = file.read_text().splitlines(keepends=True)
        (directory / file.name).write_text(
            "".join(line for line in lines if "keep_firing_for:" not in line)
        )
    return directory


def test_vmalert_takes_every_rule(tmp_path: Path) -> None:
    """It knows fewer functions in texts than Prometheus does, and starts with none refused."""
    rules = rules_for_old_vmalert(tmp_path) / "*.rules.yaml"
    command = ["vmalert", "-dryRun", f"-rule={rules}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, [line for line in done.stderr.splitlines() if "fatal" in line]


def test_rules_are_evaluated_where_the_series_of_all_shards_are(
    children: Children, tmp_path: Path, fleet: Pages, store: Store
) -> None:
    text = configuration("agent.yml", fleet.address, store)
    Prometheus(children, tmp_path / "agent", text, agent=True)
    children.start(
        ["env", f"VMALERT_LISTEN=127.0.0.1:{free_port()}", str(SCALE / "vmalert.sh"),
         store.url, "http://127.0.0.1:9", str(rules_for_old_vmalert(tmp_path))],
        log=tmp_path / "vmalert.log",
    )  # fmt: skip

    def recorded() -> list[dict[str, Any]]:
        return store.query("gpu_temperature_celsius")

    wait_for(lambda: len(recorded()) == 2 * len(NODES), "a recorded series of every GPU", limit=120)
    assert {each["metric"]["node"] for each in recorded()} == set(NODES)


def expressions() -> list[str]:
    """Every expression of the rules and dashboards, with variables filled in."""
    rules = [rule.expression for rule in every_rule()]
    boards = [filled(query.expr) for name in NAMES for query in all_queries(name)]
    return sorted({*rules, *boards})


def test_the_store_answers_what_rules_and_dashboards_ask_as_prometheus_does(
    both: tuple[Prometheus, Store],
) -> None:
    prometheus, store = both
    at = wait_for(lambda: _settled(prometheus, store), "both have a minute of data", limit=180)
    answered, differ, refused = 0, [], []
    for expression in expressions():
        ours = _labels(prometheus.query(expression, time=at))
        try:
            theirs = _labels(store.query(expression, time=at))
        except ValueError as error:
            refused.append(f"{expression}: {error}")
            continue
        answered += bool(ours)
        if ours != theirs:
            differ.append((expression, ours - theirs, theirs - ours))
    assert refused == []
    assert answered > 50
    assert differ == []


def _settled(prometheus: Prometheus, store: Store) -> float | None:
    """A time at which both hold the same minute and more."""
    held = store.samples('up{job="stagewatch"}')
    times = sorted(held.get("n1", ()))
    if not times or times[-1] - times[0] < 75:
        return None
    return float(times[-10])


def _labels(result: list[dict[str, Any]]) -> set[str]:
    return {json.dumps(each["metric"], sort_keys=True) for each in result}
