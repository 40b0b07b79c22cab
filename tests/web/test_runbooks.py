"""Runbooks as pages of the judge, and the links that lead there from a firing alert."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
import requests

from stagewatch import runbooks
from stagewatch.assets import assets
from stagewatch.demo.stack import Stack
from stagewatch.judgement.collector import JudgeOptions
from stagewatch.judgement.service import COMMAND
from tests.deploy.engine import need
from tests.waiting import wait_for
from tests.web.http_helpers import Serve
from tests.web.test_auth import basic, write_users

NAMES = sorted(file.stem for file in assets("alerts").glob("runbooks/*.md"))
HOSTILE = [
    "/runbooks/../alerts/self.rules.yaml",
    "/runbooks/..%2fself.rules.yaml",
    "/runbooks/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "/runbooks//etc/passwd",
    "/runbooks/%2fetc%2fpasswd",
    "/runbooks/JobStalled.md%00",
    "/runbooks/JobStalled.md/",
    "/runbooks/JobStalled.md.md",
    "/runbooks/*",
    "/runbooks/%ff",
    "/runbooks/<script>",
]


def pages() -> dict[str, object]:
    """What the judge serves of runbooks."""
    return {"routes": {runbooks.PATH: runbooks.index}, "lookups": {runbooks.PATH: runbooks.page}}


def test_every_runbook_is_a_page_whose_links_open(serve: Serve) -> None:
    agent = serve(**pages())
    listed = agent.get("/runbooks/").text
    assert re.findall(r'<li><a href="(\w+)\.md">', listed) == NAMES
    for name in NAMES:
        reply = agent.get(f"/runbooks/{name}.md")
        assert reply.status == 200 and f"<h1>{name}</h1>" in reply.text
        assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "script-src" not in reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        for heading in ("What it means", "Confirm", "What to do", "What makes it fire falsely"):
            assert f"<h2>{heading}</h2>" in reply.text
        assert "](" not in reply.text and "```" not in reply.text
        for link in re.findall(r'href="([^"]*)"', reply.text):
            place = urljoin(f"/runbooks/{name}.md", link)
            assert link == "data:," or agent.get(place).status == 200, link
    assert agent.get("/runbooks/JobStalled").text == agent.get("/runbooks/JobStalled.md").text
    assert "<td><code>awaited</code></td>" in agent.get("/runbooks/JobStalled").text


@pytest.mark.parametrize("path", HOSTILE)
def test_only_names_of_alerts_open_a_page(serve: Serve, path: str) -> None:
    answer = serve(**pages()).send(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"404", b"400")
    assert b"root:" not in answer and b"groups:" not in answer


def test_without_the_password_of_the_judge_no_runbook_opens(serve: Serve, tmp_path: Path) -> None:
    write_users(tmp_path, alice="wonder:land")
    agent = serve(web_config=tmp_path / "web.yml", **pages())
    for path in ("/runbooks/", "/runbooks/JobStalled.md"):
        assert agent.get(path).status == 401
        assert agent.get(path, Authorization=basic("alice", "wonder:land")).status == 200


def test_links_lead_where_browsers_reach_the_judge(tmp_path: Path) -> None:
    def place(**options: object) -> str:
        return runbooks.place(JudgeOptions(**options))  # type: ignore[arg-type]

    here = socket.getfqdn()
    assert place() == "http://127.0.0.1:9949/runbooks"
    for anywhere in ("", "0.0.0.0", "::"):
        assert place(listen=(anywhere, 9949)) == f"http://{here}:9949/runbooks"
    assert place(listen=("fd00::1", 80)) == "http://[fd00::1]:80/runbooks"
    assert place(url="https://judge.site/sw/") == "https://judge.site/sw/runbooks"
    write_users(tmp_path, alice="wonder:land")
    assert place(web_config=tmp_path / "web.yml") == "http://127.0.0.1:9949/runbooks"
    files = "{cert_file: judge.pem, key_file: judge.key}"
    (tmp_path / "tls.yml").write_text(f"tls_server_config: {files}")
    assert place(web_config=tmp_path / "tls.yml") == "https://127.0.0.1:9949/runbooks"


def test_the_judge_serves_them(tmp_path: Path) -> None:
    context = COMMAND.context(JudgeOptions(case_dir=tmp_path))
    assert runbooks.PATH in COMMAND.routes(context) and runbooks.PATH in COMMAND.lookups(context)
    assert runbooks.SPEC in COMMAND.specs()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    need("prometheus")
    stack = Stack(cache=tmp_path, nodes=())
    try:
        yield stack
    finally:
        stack.stop()


def test_the_link_of_a_firing_alert_opens_its_runbook(stack: Stack) -> None:
    """`Watchdog` fires always: without its judge with a path, which Alertmanager completes."""
    stack.start_prometheus()

    def link() -> str:
        answer = requests.get(f"{stack.url}/api/v1/alerts", timeout=10).json()
        found = [
            str(alert["annotations"]["runbook_url"])
            for alert in answer["data"]["alerts"]
            if alert["labels"]["alertname"] == "Watchdog" and alert["state"] == "firing"
        ]
        return found[0] if found else ""

    wait_for(lambda: link() == f"http://{stack.judge}/runbooks/Watchdog.md", "an address", limit=90)
    opened = requests.get(link(), timeout=10)
    assert opened.status_code == 200 and "<h1>Watchdog</h1>" in opened.text
