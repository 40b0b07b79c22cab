"""Probes of real servers, good and bad ones."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from stagewatch.core.children.helper import Helper
from stagewatch.core.exposition import Samples
from stagewatch.network import probe
from stagewatch.network.probe import ProbeCollector, ProbeOptions, job, targets
from tests.serving import Reply, Request, WebServer
from tests.waiting import wait_for

Start = Callable[..., ProbeCollector]


@pytest.fixture
def start() -> Iterator[Start]:
    """Collectors that are closed with the test."""
    with ExitStack() as stack:

        def begin(*wanted: str, timeout: float = 30.0, deadline: float = 60.0) -> ProbeCollector:
            options = ProbeOptions(wanted, every=1.0, timeout=timeout, deadline=deadline)
            helper = Helper({name: job(name, options) for name in wanted})
            stack.callback(helper.close)
            return ProbeCollector(helper)

        yield begin


@contextmanager
def web_server(status: int) -> Iterator[int]:
    def answer(request: Request) -> Reply:
        return Reply(status=status if request.path == "/health?x=1" else 404)

    with closing(WebServer(answer)) as server:
        yield server.port


def result(collector: ProbeCollector) -> Samples:
    return wait_for(
        lambda: probe.SUCCESS in (out := collector.collect()).families and out, "a probe"
    )


def test_a_web_server_that_answers_is_timed_in_every_phase(start: Start) -> None:
    with web_server(200) as port:
        name = f"http://127.0.0.1:{port}/health?x=1"
        out = result(start(name))
    assert out.value(probe.SUCCESS, name) == 1
    assert {phase for _, phase in out.families[probe.SECONDS]} == {"dns", "connect", "http"}
    assert probe.ERROR not in out.families


def test_a_probe_past_its_deadline_is_given_up(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = f"http://127.0.0.1:{server.getsockname()[1]}/"
        out = result(start(name, timeout=1000, deadline=0.5))
        assert out.value(probe.ERROR, name, "http", "deadline") == 1


def test_a_port_where_nobody_listens_refuses(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    name = f"tcp:127.0.0.1:{port}"
    out = result(start(name))
    assert out.value(probe.ERROR, name, "connect", "ECONNREFUSED") == 1
    assert out.value(probe.SECONDS, name, "dns") is not None


def test_a_name_that_does_not_resolve_fails_in_dns(start: Start) -> None:
    name, good = "dns:nobody.invalid", "dns:localhost"
    collector = start(name, good)
    out = wait_for(
        lambda: len((out := collector.collect()).families.get(probe.SUCCESS, {})) == 2 and out,
        "both",
    )
    assert out.value(probe.SUCCESS, good) == 1
    assert out.value(probe.SUCCESS, name) == 0
    [(_, phase, error)] = out.families[probe.ERROR]
    assert phase == "dns"
    assert error.startswith("EAI_")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")
def test_a_certificate_that_nobody_signed_fails_in_tls(start: Start, tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    key = tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def accept(server: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(server.accept()[0], server_side=True):
            pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        name = f"https://127.0.0.1:{server.getsockname()[1]}/"
        out = result(start(name))
    assert out.value(probe.ERROR, name, "tls", "certificate") == 1


@pytest.mark.parametrize(
    "refused",
    ["host", "tcp:host", "tcp:host:x", "ftp://h", "http://", "http://h:x/", "http://h/\r\nX: y",
     "dns:", ["dns:a"] * 51, "http://h/a b"],
)  # fmt: skip
def test_other_targets_are_refused(refused: str | list[str]) -> None:
    with pytest.raises(ValueError):
        targets(refused)
