"""The agent as the process that an operator starts, and Prometheus as its scraper."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import bcrypt
import psutil
import pytest

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.deploy.store import Prometheus
from tests.waiting import wait_for
from tests.web.certificates import Authority
from tests.web.http_helpers import GENEROUS, Serve

Start = Callable[..., tuple[subprocess.Popen[bytes], int]]


@pytest.fixture
def start(children: Children, tmp_path: Path) -> Start:
    """Starts `stagewatch node` on a free port of the loopback interface, and waits for it."""

    def start(*flags: object) -> tuple[subprocess.Popen[bytes], int]:
        port = free_port()
        (tmp_path / "ranks").mkdir(exist_ok=True)
        command = [sys.executable, "-m", "stagewatch.cli", "node"]
        command += ["--listen", f"127.0.0.1:{port}", "--record-dir", str(tmp_path / "ranks")]
        process = children.start([*command, *map(str, flags)], log=tmp_path / "agent.log")

        def listening() -> bool:
            assert process.poll() is None, (tmp_path / "agent.log").read_text()
            with closing(socket.socket()) as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0

        wait_for(listening, "the agent listens")
        return process, port

    return start


def test_sigterm_ends_an_agent_that_is_full_of_clients(start: Start) -> None:
    process, port = start()
    with ExitStack() as stack:
        for part in (b"", b"GET / HT", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
            for _ in range(4):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                sock.sendall(part)
        process.send_signal(signal.SIGTERM)
        # Far less than the 90 s for which an idle connection would be kept.
        assert process.wait(timeout=GENEROUS) == 0


def test_nothing_listens_beyond_what_was_asked(start: Start) -> None:
    process, port = start()
    agent = psutil.Process(process.pid)
    sockets = []
    for member in (agent, *agent.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # a worker that is done by now
            sockets += member.net_connections(kind="inet")
    listening = {
        (found.laddr.ip, found.laddr.port)
        for found in sockets
        if found.status == psutil.CONN_LISTEN or found.type == socket.SOCK_DGRAM
    }
    assert listening == {("127.0.0.1", port)}


def test_a_port_in_use_ends_the_agent_with_one_line(start: Start) -> None:
    _, port = start()
    command = [sys.executable, "-m", "stagewatch.cli", "node", "--listen", f"127.0.0.1:{port}"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS, check=False)
    assert second.returncode == 2
    assert second.stderr == (
        f"stagewatch: cannot listen on 127.0.0.1:{port}: "
        "the port is in use; is another agent running?\n"
    )


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (package prometheus)")
@pytest.mark.parametrize("scene", ["hang", "hostile"])
def test_promtool_finds_nothing_to_say_about_the_metrics(settled: Serve, scene: str) -> None:
    metrics = settled(scene).get("/metrics").body
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, b"")


def test_prometheus_scrapes_through_client_certificate_and_password(
    start: Start, children: Children, authority: Authority, tmp_path: Path
) -> None:
    server, client = authority.issue(), authority.issue()
    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(5)).decode()
    (tmp_path / "web.yml").write_text(
        f"tls_server_config:\n  cert_file: {server.certificate}\n  key_file: {server.key}\n"
        f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {authority.file}\n"
        f"basic_auth_users:\n  prometheus: {hashed}\n"
    )
    _, port = start("--web-config", tmp_path / "web.yml")

    def job(name: str, password: str, certificate: bool) -> dict[str, object]:
        tls = {"ca_file": str(authority.file)}
        if certificate:
            tls |= {"cert_file": str(client.certificate), "key_file": str(client.key)}
        return {
            "job_name": name,
            "scheme": "https",
            "tls_config": tls,
            "basic_auth": {"username": "prometheus", "password": password},
            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
        }

    jobs = [job("right", "s3cret", True), job("wrong", "guess", True), job("bare", "s3cret", False)]
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
    prometheus = Prometheus(children, tmp_path / "prometheus", json.dumps(config))

    def scraped() -> dict[str, str] | None:
        errors = {
            target["labels"]["job"]: target["lastError"]
            for target in prometheus.ask("/api/v1/targets")["activeTargets"]
            if target["health"] != "unknown"
        }
        return errors if len(errors) == 3 else None

    errors = wait_for(scraped, "Prometheus has tried all three")
    assert errors["right"] == ""
    assert "401" in errors["wrong"]
    # The agent may have closed the connection before Prometheus hears of the certificate.
    wait_for(lambda: "certificate" in (scraped() or {}).get("bare", ""), "it wants a certificate")
    query = 'stagewatch_collector_success{job="right"}'
    wait_for(lambda: prometheus.query(query), "series are there")


def test_sigterm_ends_an_agent_whose_clients_try_passwords(start: Start, tmp_path: Path) -> None:
    """A check of a password is native code, which no signal and no end of the agent interrupts."""
    config = tmp_path / "web.yml"
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(8)).decode()
    config.write_text(json.dumps({"basic_auth_users": {"prometheus": hashed}}))
    process, port = start("--web-config", config)
    stopped = threading.Event()

    def guess(seed: int) -> None:
        for number in itertools.count():
            guess = base64.b64encode(f"prometheus:{seed}-{number}".encode()).decode()
            request = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {guess}\r\n\r\n"
            if stopped.is_set():
                return
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port), timeout=GENEROUS) as sock,
            ):
                sock.sendall(request.encode())
                answers.append(sock.recv(100))

    answers: list[bytes] = []
    threads = [threading.Thread(target=guess, args=(seed,)) for seed in range(24)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: any(b" 401 " in answer for answer in answers), "guesses are checked")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=GENEROUS) == 0
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    log = (tmp_path / "agent.log").read_text()
    assert "FATAL" not in log and "Traceback" not in log
