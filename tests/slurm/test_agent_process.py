"""The Slurm agent as the process that an operator starts, behind TLS and a password."""

from __future__ import annotations

import base64
import http.client
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import bcrypt
import pytest

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.waiting import wait_for
from tests.web.certificates import Authority
from tests.web.http_helpers import GENEROUS

STAGEWATCH = (sys.executable, "-m", "stagewatch.cli")
PAGES = ("/metrics", "/sd", "/sd/stagewatch", "/", "/-/healthy")


@pytest.fixture
def children() -> Iterator[Children]:
    with Children() as children:
        yield children


@pytest.fixture
def web_config(authority: Authority, tmp_path: Path) -> Path:
    server = authority.issue()
    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(5)).decode()
    file = tmp_path / "web.yml"
    file.write_text(
        f"tls_server_config:\n  cert_file: {server.certificate}\n  key_file: {server.key}\n"
        f"basic_auth_users:\n  prometheus: {hashed}\n"
    )
    return file


def status(port: int, page: str, authority: Authority, password: str | None) -> int:
    """What a client that trusts the authority is answered; OSError while nobody listens."""
    headers = {}
    if password is not None:
        secret = base64.b64encode(f"prometheus:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {secret}"
    context = ssl.create_default_context(cafile=authority.file)
    client = http.client.HTTPSConnection("localhost", port, context=context, timeout=GENEROUS)
    with closing(client):
        client.request("GET", page, headers=headers)
        return client.getresponse().status


def test_pages_and_service_discovery_ask_for_the_password_over_tls(
    children: Children, authority: Authority, web_config: Path, tmp_path: Path
) -> None:
    """Also where no Slurm is found: nobody learns even that without the password."""
    port = free_port()
    flags = ["--listen", f"127.0.0.1:{port}", "--web-config", web_config]
    flags += ["--bin-dir", tmp_path / "none", "--state-dir", tmp_path / "state"]
    children.start([*STAGEWATCH, "slurm", *map(str, flags)], log=tmp_path / "agent.log")

    def ready() -> bool:
        try:
            return status(port, "/-/healthy", authority, "s3cret") == 200
        except ConnectionError:
            return False

    wait_for(ready, "the agent answers")
    assert {status(port, page, authority, None) for page in PAGES} == {401}
    assert {status(port, page, authority, "guess") for page in PAGES} == {401}
    assert status(port, "/metrics", authority, "s3cret") == 200
    assert status(port, "/sd", authority, "s3cret") == 503  # no list, so Prometheus keeps its own


def test_web_config_that_cannot_be_used_ends_the_agent_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text("basic_auth_user: {}\n")
    flags = ["--web-config", str(tmp_path / "web.yml"), "--state-dir", str(tmp_path)]
    for command in (["slurm", "--listen", "127.0.0.1:0"], ["check-config", "--agent", "slurm"]):
        done = subprocess.run(
            [*STAGEWATCH, *command, *flags],
            capture_output=True,
            text=True,
            timeout=GENEROUS,
            check=False,
        )
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("stagewatch: ")
        assert "basic_auth_user" in line
