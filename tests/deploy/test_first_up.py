"""What the first `docker compose up` on a healthy machine without Slurm tells people: nothing.

The shipped configurations, rules and variables are used with addresses of this machine, so that no
engine is needed; rules that wait longer for their turn have it every 15 s.
The agent has a PID namespace of its own: other tests' ranks are not its.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import requests
import yaml

from stagewatch.cli import main
from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.deploy.engine import ROOT, need
from tests.deploy.store import Prometheus, Server
from tests.running import clean_environ
from tests.waiting import wait_for

SERVICES = ("node:9947", "node:9100", "localhost:9090", "alertmanager:9093", "judge:9949")
EVALUATED = """
min(changes(prometheus_rule_group_last_evaluation_timestamp_seconds[10m])) >= 2
and on () count(min_over_time(up[15s]) == 1) == 5
"""
"""Every group of rules has run, also since all targets are up."""


@pytest.mark.timeout(600)
def test_nothing_is_told_of_a_healthy_machine_without_slurm(
    children: Children, tmp_path: Path
) -> None:
    need("prometheus", "prometheus-alertmanager", "prometheus-node-exporter", "unshare")
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux to make PID namespaces")
    addresses = tuple(f"127.0.0.1:{free_port()}" for _ in SERVICES)
    node, exporter, prometheus, alertmanager, judge = addresses
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    children.start(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
         sys.executable, "-m", "stagewatch.cli", *compose["node"]["command"], "--listen", node,
         "--record-dir", str(tmp_path), "--fault-dir", str(tmp_path)],
        environ=clean_environ({**compose["node"]["environment"], "STAGEWATCH_LISTEN": ""}),
        log=tmp_path / "agent.log",
    )  # fmt: skip
    children.start(
        ["prometheus-node-exporter", f"--web.listen-address={exporter}"],
        log=tmp_path / "exporter.log",
    )
    children.start(
        ["prometheus-alertmanager", f"--web.listen-address={alertmanager}",
         "--cluster.listen-address=", f"--storage.path={tmp_path / 'alertmanager'}",
         f"--config.file={ROOT / 'deploy' / 'alertmanager' / 'alertmanager.yml'}"],
        log=tmp_path / "alertmanager.log",
    )  # fmt: skip
    command, *flags = compose["judge"]["command"]
    children.start(
        [sys.executable, "-m", "stagewatch.cli", command, *flags, f"--listen={judge}",
         f"--prometheus=http://{prometheus}", f"--case-dir={tmp_path / 'cases'}"],
        environ=clean_environ({}),
        log=tmp_path / "judge.log",
    )  # fmt: skip
    written = {"/var/lib": str(tmp_path), "127.0.0.1:9949": judge}
    given = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", " ".join(compose["rules"]["command"]))
    for inside, outside in written.items():
        assert inside in given
        given = given.replace(inside, outside)
    assert main(given.split()) == 0
    for file in (tmp_path / "stagewatch" / "alerts").glob("*.rules.yaml"):
        sooner = re.sub(r"(?m)^( +interval: )(?:30s|60s|1m|2m)\b", r"\g<1>15s", file.read_text())
        file.write_text(sooner)
    text = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()
    text = text.replace("stagewatch/alerts", f"{tmp_path}/stagewatch/alerts")
    for inside, outside in zip(SERVICES, addresses, strict=True):
        assert inside in text
        text = text.replace(inside, outside)
    server = Prometheus(children, tmp_path / "prometheus", text, listen=prometheus)
    wait_for(lambda: server.query(EVALUATED), "every group of rules has run", limit=300)
    ever = server.query("count by (alertname, alertstate) (last_over_time(ALERTS[10m]))")
    allowed = {"Watchdog"}
    if server.query("node_timex_sync_status == 0"):  # of this machine it is true
        allowed |= {"ClockUnsynchronized"}
    assert {each["metric"]["alertname"] for each in ever} - allowed == set()
    manager = Server(f"http://{alertmanager}")
    told = wait_for(
        lambda: manager.page("/api/v2/alerts"),
        "Alertmanager has been told of one",  # again after a minute, if Prometheus knew of none yet
        limit=180,
    )
    assert {alert["labels"]["alertname"] for alert in told} == {"Watchdog"}
    links = {alert["annotations"]["runbook_url"] for alert in told}
    links |= {
        rule["annotations"]["runbook_url"]
        for group in Server(f"http://{prometheus}").page("/api/v1/rules")["data"]["groups"]
        for rule in group["rules"]
        if rule["type"] == "alerting"
    }
    assert len(links) > 100, "of rules, too"
    for link in links:
        assert "<h2>What to do</h2>" in requests.get(link, timeout=10).text, link
