"""deploy/scale/pair.yml: two Prometheus and two Alertmanagers tell people once; one is enough."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.alerts.alertmanager import BINARY
from tests.alerts.listener import Listener
from tests.deploy.engine import ROOT, need
from tests.deploy.store import Pages, Prometheus, Server
from tests.running import output
from tests.waiting import wait_for

PAIR = ("a", "b")
PEER_SECONDS = 3
"""That the second waits for news of the first, which are 15 s by default."""
RULE = {"alert": "NodeIsOff", "expr": "off == 1", "labels": {"severity": "critical"}}


@pytest.fixture
def listener() -> Iterator[Listener]:
    with closing(Listener()) as listener:
        yield listener


def test_promtool_takes_every_configuration() -> None:
    need("promtool")
    files = sorted(map(str, (ROOT / "deploy" / "scale").glob("*.yml")))
    command = ["promtool", "check", "config", "--syntax-only", *files]
    assert output(*command).count("SUCCESS") == len(files)


@pytest.mark.timeout(300)
def test_a_pair_tells_once_and_goes_on_when_half_of_it_is_lost(
    tmp_path: Path, listener: Listener
) -> None:
    need("prometheus")
    if BINARY is None:
        pytest.skip("needs Alertmanager")
    off: set[str] = set()
    pages = Pages(
        {f"/{node}": lambda node=node: f"off {int(node in off)}\n" for node in ("n1", "n2")}  # type: ignore[misc]
        | {
            "/sd/stagewatch": lambda: json.dumps(
                [
                    {
                        "targets": [pages.address],
                        "labels": {"cluster": "c", "node": node, "__metrics_path__": f"/{node}"},
                    }
                    for node in ("n1", "n2")
                ]
            )
        }
    )
    web = {name: f"127.0.0.1:{free_port()}" for name in PAIR}
    gossip = {name: f"127.0.0.1:{free_port()}" for name in PAIR}
    halves = {name: Children() for name in PAIR}
    try:
        for name, other in zip(PAIR, reversed(PAIR), strict=True):
            _alertmanager(
                halves[name], tmp_path / name, listener, web[name], gossip[name], gossip[other]
            )
        for name in PAIR:
            text = _prometheus(name, pages.address, web, tmp_path)
            Prometheus(halves[name], tmp_path / f"prometheus-{name}", text)
        managers = {name: Server(f"http://{address}") for name, address in web.items()}

        def peers(name: str) -> int:
            return len(managers[name].page("/api/v2/status")["cluster"]["peers"])

        wait_for(lambda: all(peers(name) == 2 for name in PAIR), "the Alertmanagers are a pair")

        def told(node: str) -> int:
            return sum(f'"node":"{node}"' in body for body in listener.to("/hook"))

        off.add("n1")
        wait_for(lambda: told("n1"), "a message")
        [first], [second] = (
            wait_for(lambda manager=managers[name]: manager.page("/api/v2/alerts"), "the alert")
            for name in PAIR
        )
        assert first["fingerprint"] == second["fingerprint"]
        assert "replica" not in first["labels"]
        time.sleep(3 * PEER_SECONDS)
        assert told("n1") == 1
        halves["a"].stop()
        off.add("n2")
        wait_for(lambda: told("n2"), "a message of the half that is left")
    finally:
        for half in halves.values():
            half.stop()
        pages.close()


def _alertmanager(
    children: Children, directory: Path, listener: Listener, web: str, own: str, peer: str
) -> None:
    """An Alertmanager with the shipped configuration, whose pages go to the listener."""
    directory.mkdir()
    source = ROOT / "deploy" / "alertmanager"
    config = yaml.safe_load((source / "alertmanager.yml").read_text())
    config["templates"] = [f"{source}/templates/*.tmpl"]
    hook = {"url": f"{listener.url}/hook", "send_resolved": False}
    config["receivers"] = [
        {"name": each["name"], "webhook_configs": [hook] if each["name"] == "page" else []}
        for each in config["receivers"]
    ]
    for route in config["route"]["routes"]:
        route |= {"group_wait": "1s", "group_interval": "1s", "group_by": ["node"]}
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(config))
    children.start(
        [str(BINARY), f"--config.file={directory / 'alertmanager.yml'}",
         f"--storage.path={directory / 'data'}", f"--web.listen-address={web}",
         f"--cluster.listen-address={own}", f"--cluster.peer={peer}",
         f"--cluster.peer-timeout={PEER_SECONDS}s"],
        log=directory / "log",
    )  # fmt: skip
    wait_for(lambda: Server(f"http://{web}").answers("/-/ready"), "Alertmanager is ready")


def _prometheus(name: str, fleet: str, managers: dict[str, str], directory: Path) -> str:
    """The shipped configuration of a replica, with one rule and these addresses."""
    text = (ROOT / "deploy" / "scale" / "pair.yml").read_text()
    text = text.replace("replica: a}", f"replica: {name}}}").replace("slurm-agent:9948", fleet)
    for each, address in managers.items():
        text = text.replace(f"alertmanager-{each}:9093", address)
    (rules := directory / "rules.json").write_text(
        json.dumps({"groups": [{"name": "test", "rules": [RULE]}]})
    )
    config = yaml.safe_load(text)
    config["global"] |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    config["global"] |= {"evaluation_interval": "1s"}
    config["rule_files"] = [str(rules)]
    return str(yaml.safe_dump(config))
