"""A real Alertmanager with the shipped configuration, and receivers that only listen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.alerts.alertmanager import SOURCE, Manager
from tests.alerts.listener import Listener
from tests.waiting import wait_for

BINARY = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
SECRETS = ("smtp_password", "slack_url", "pagerduty_key", "webhook_token")


@pytest.fixture
def manager(children: Children, tmp_path: Path) -> Iterator[Manager]:
    """The example's configuration, with addresses that lead to a listener, and no long waits."""
    if BINARY is None:
        pytest.skip("needs alertmanager on the PATH")
    listener = Listener()
    text = (SOURCE / "receivers.example.yml").read_text()
    config = yaml.safe_load(text.replace("/etc/alertmanager/secrets", str(tmp_path / "secrets")))
    shutil.copytree(SOURCE / "templates", tmp_path / "templates")
    site = tmp_path / "templates" / "site.tmpl"
    site.write_text(site.read_text().replace("example.org", "our.site"))
    (tmp_path / "secrets").mkdir()
    for name in SECRETS:
        (tmp_path / "secrets" / name).write_text(f"secret-of-{name}")
    (tmp_path / "secrets" / "slack_url").write_text(f"{listener.url}/slack")
    config["global"] |= {"smtp_smarthost": listener.smarthost, "smtp_require_tls": False}
    config["global"]["pagerduty_url"] = f"{listener.url}/pagerduty"
    del config["global"]["smtp_auth_username"], config["global"]["smtp_auth_password_file"]
    receivers = {receiver["name"]: receiver for receiver in config["receivers"]}
    sns = receivers["note"]["sns_configs"][0]
    sns["api_url"] = f"{listener.url}/sns"
    sns["sigv4"] |= {"access_key": "of-the-test", "secret_key": "of-the-test"}
    receivers["note"]["webhook_configs"][0]["url"] = f"{listener.url}/webhook"
    for route in (config["route"], *config["route"]["routes"]):
        route |= {"group_wait": "1s", "group_interval": "1s"}
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    children.start(
        [
            BINARY,
            f"--config.file={file}",
            f"--storage.path={tmp_path / 'data'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ],
        log=tmp_path / "log",
    )
    url = f"http://{address}"

    def ready() -> bool:
        try:
            return requests.get(f"{url}/-/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    wait_for(ready, "Alertmanager answers")
    yield Manager(url, listener)
    children.stop()
    listener.close()
