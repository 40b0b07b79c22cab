"""A real Alertmanager as a test tells it of alerts, and what it has sent."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import requests
import yaml

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.alerts.listener import Listener
from tests.dashboards.boards import ROOT
from tests.waiting import wait_for

SOURCE = ROOT / "deploy" / "alertmanager"
"""The configuration that is shipped."""
BINARY = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
SECRETS = ("smtp_password", "slack_url", "pagerduty_key", "webhook_token")


@contextlib.contextmanager
def running(children: Children, directory: Path) -> Iterator[Manager]:
    """The example's configuration, with addresses that lead to a listener and waits of a second."""
    assert BINARY is not None
    listener = Listener()
    text = (SOURCE / "receivers.example.yml").read_text()
    config = yaml.safe_load(text.replace("/etc/alertmanager/secrets", str(directory / "secrets")))
    shutil.copytree(SOURCE / "templates", directory / "templates")
    site = directory / "templates" / "site.tmpl"
    site.write_text(site.read_text().replace("example.org", "our.site"))
    (directory / "secrets").mkdir()
    for name in SECRETS:
        (directory / "secrets" / name).write_text(f"secret-of-{name}")
    (directory / "secrets" / "slack_url").write_text(f"{listener.url}/slack")
    config["global"] |= {"smtp_smarthost": listener.smarthost, "smtp_require_tls": False}
    config["global"]["pagerduty_url"] = f"{listener.url}/pagerduty"
    del config["global"]["smtp_auth_username"], config["global"]["smtp_auth_password_file"]
    receivers = {receiver["name"]: receiver for receiver in config["receivers"]}
    sns = receivers["note"]["sns_configs"][0]
    sns["api_url"] = f"{listener.url}/sns"
    sns["sigv4"] |= {"access_key": "of-the-test", "secret_key": "of-the-test"}
    for name, path in (("note", "webhook"), ("watchdog", "watchdog")):
        for hook in receivers.get(name, {}).get("webhook_configs", ()):
            hook["url"] = f"{listener.url}/{path}"
    for route in _routes(config["route"]):
        for wait in ("group_wait", "group_interval"):
            route[wait] = "1s"
    file = directory / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    children.start(
        [
            BINARY,
            f"--config.file={file}",
            f"--storage.path={directory / 'data'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ],
        log=directory / "log",
    )
    url = f"http://{address}"

    def ready() -> bool:
        try:
            return requests.get(f"{url}/-/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    wait_for(ready, "Alertmanager answers")
    try:
        yield Manager(url, listener)
    finally:
        children.stop()
        listener.close()


def _routes(route: Mapping[str, Any]) -> Iterator[Any]:
    yield route
    for child in route.get("routes", ()):
        yield from _routes(child)


class Manager:
    """One Alertmanager and what it has sent."""

    def __init__(self, url: str, listener: Listener) -> None:
        self.url = url
        self.heard = listener

    def fire(self, name: str, *, resolved: bool = False, **labels: str) -> None:
        """Tell it of an alert, with annotations such as the rules give."""
        self.tell([self.alert(name, resolved=resolved, **labels)])

    def tell(self, alerts: list[dict[str, Any]]) -> None:
        """Tell it of several at once."""
        requests.post(f"{self.url}/api/v2/alerts", json=alerts, timeout=60).raise_for_status()

    def alert(self, name: str, *, resolved: bool = False, **labels: str) -> dict[str, Any]:
        """An alert as Prometheus would send it."""
        now = time.time()
        ends = now - 1 if resolved else now + 600
        return {
            "labels": {"alertname": name} | {"cluster": "lab"} | labels,
            "annotations": {
                "summary": f"The summary of {name}.",
                "description": f"The description of {name}.",
                "runbook_url": f"alerts/runbooks/{name}.md",
                "dashboard_url": "/d/stagewatch-job?var-job_id=540",
            },
            "startsAt": _iso(min(now, ends)),  # an older one is sent without those beside it
            "endsAt": _iso(ends),
        }

    def state(self, name: str) -> str:
        """`active` or `suppressed`."""
        alerts = requests.get(f"{self.url}/api/v2/alerts", timeout=10).json()
        (found,) = [alert for alert in alerts if alert["labels"]["alertname"] == name]
        text: str = found["status"]["state"]
        return text


def _iso(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
