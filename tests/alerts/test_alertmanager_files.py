"""The shipped configuration of Alertmanager, as it is written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.alerts.alertmanager import SOURCE
from tests.dashboards.boards import ROOT
from tests.running import output


def test_both_files_route_and_inhibit_alike() -> None:
    plain = yaml.safe_load((SOURCE / "alertmanager.yml").read_text())
    example = yaml.safe_load((SOURCE / "receivers.example.yml").read_text())
    for key in ("route", "inhibit_rules", "templates"):
        assert plain[key] == example[key]
    assert [receiver["name"] for receiver in plain["receivers"]] == [
        receiver["name"] for receiver in example["receivers"]
    ]


@pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool")
@pytest.mark.parametrize("name", ["alertmanager.yml", "receivers.example.yml"])
def test_amtool_accepts_the_file(name: str) -> None:
    output("amtool", "check-config", SOURCE / name)


@pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool")
@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (("alertname=JobStalled", "severity=critical", "account=nlp"), "team-nlp,page"),
        (("alertname=ThroughputDropped", "severity=warning", "account=nlp"), "team-nlp,ticket"),
        (("alertname=JobStalled", "severity=critical", "account=rl"), "page"),
        (("alertname=ThroughputDropped", "severity=warning", "account=rl"), "ticket"),
        (("alertname=Watchdog", "severity=info", "notify=watchdog"), "watchdog"),
        (("alertname=JobStalled", "severity=critical"), "page"),
        (("alertname=GPUAllocatedIdle", "severity=info", "account=nlp"), "note"),
        (("alertname=SlurmJobEnding", "severity=info", "notify=nobody"), "nobody"),
    ],
)
def test_the_routes_in_the_docs_tell_the_owner_of_a_job_as_well(
    labels: tuple[str, ...], receivers: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "operating.md").read_text()
    (block,) = [b for b in re.findall(r"```yaml\n(.*?)```", page, re.S) if "team-nlp" in b]
    content = yaml.safe_load((SOURCE / "alertmanager.yml").read_text())
    content["route"]["routes"][:0] = yaml.safe_load(block)
    content["receivers"].append({"name": "team-nlp"})
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump(content | {"templates": []}))
    command = ["amtool", "config", "routes", "test", f"--config.file={file}"]
    command += [f"--verify.receivers={receivers}", "cluster=lab", "job_id=540", *labels]
    output(*command)


def test_secrets_are_read_from_files() -> None:
    text = (SOURCE / "receivers.example.yml").read_text()
    lines = [line.strip().lstrip("- ") for line in text.splitlines()]
    named = [
        line for line in lines if re.match(r"\S*(password|_key|token|slack_api_url)\S*:", line)
    ]
    assert len(named) == 3
    assert all(re.match(r"\w+_file: /etc/alertmanager/secrets/\w+$", line) for line in named)
    assert "credentials_file: /etc/alertmanager/secrets/webhook_token" in text
