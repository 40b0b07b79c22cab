"""The shipped configuration of Alertmanager, as it is written."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml

from tests.alerts.alertmanager import SOURCE


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
    command = ["amtool", "check-config", str(SOURCE / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_secrets_are_read_from_files() -> None:
    text = (SOURCE / "receivers.example.yml").read_text()
    lines = [line.strip().lstrip("- ") for line in text.splitlines()]
    named = [
        line for line in lines if re.match(r"\S*(password|_key|token|slack_api_url)\S*:", line)
    ]
    assert len(named) == 3
    assert all(re.match(r"\w+_file: /etc/alertmanager/secrets/\w+$", line) for line in named)
    assert "credentials_file: /etc/alertmanager/secrets/webhook_token" in text
