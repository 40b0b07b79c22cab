"""Who gets through TLS and client certificates, and what happens as they change."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from stagewatch.web.connection import Limits
from tests.waiting import wait_for
from tests.web.certificates import Authority, Issued
from tests.web.http_helpers import GENEROUS, Agent, Serve

Secure = Callable[..., Agent]
REQUEST = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture
def secure(serve: Serve, authority: Authority, tmp_path: Path) -> Secure:
    """Starts an agent with TLS; keywords are further keys of `tls_server_config`."""

    def start(issued: Issued | None = None, **keys: object) -> Agent:
        issued = issued or authority.issue()
        keys = {"cert_file": issued.certificate, "key_file": issued.key, **keys}
        lines = "".join(f"  {key}: {value}\n" for key, value in keys.items())
        (tmp_path / "web.yml").write_text(f"tls_server_config:\n{lines}")
        return serve(web_config=tmp_path / "web.yml", limits=Limits(head_seconds=GENEROUS))

    return start


def trusting(authority: Authority, client: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    return context


def get(agent: Agent, context: ssl.SSLContext) -> int:
    """The status of a request; OSError where TLS or the server ends the connection first."""
    port = agent.server.port
    client = http.client.HTTPSConnection("localhost", port, context=context, timeout=GENEROUS)
    with closing(client):
        client.request("GET", "/metrics")
        response = client.getresponse()
        response.read()
        return response.status


def served_serial(agent: Agent, authority: Authority) -> object:
    with (
        socket.create_connection(agent.address, timeout=GENEROUS) as plain,
        trusting(authority).wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        return sock.getpeercert()["serialNumber"]


def verifying(authority: Authority) -> dict[str, object]:
    return {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": authority.file}


def test_a_client_with_the_right_certificate_is_served(
    secure: Secure, authority: Authority
) -> None:
    assert get(secure(**verifying(authority)), trusting(authority, authority.issue())) == 200


@pytest.mark.parametrize("which", ["none", "of another authority", "expired"])
def test_a_client_without_a_valid_certificate_is_refused(
    secure: Secure, authority: Authority, tmp_path: Path, which: str
) -> None:
    agent = secure(**verifying(authority))
    (tmp_path / "other").mkdir()
    client = {
        "none": lambda: None,
        "of another authority": lambda: Authority(tmp_path / "other", "somebody else").issue(),
        "expired": lambda: authority.issue(days=(-2, -1)),
    }[which]()
    with pytest.raises(OSError):
        get(agent, trusting(authority, client))
    assert get(agent, trusting(authority, authority.issue())) == 200


def test_a_resumed_session_does_not_outlive_the_clients_certificate(
    secure: Secure, authority: Authority
) -> None:
    agent = secure(**verifying(authority))
    ends = time.time() + 3
    context = trusting(authority, authority.issue(days=(-1, 3 / 86400)))

    def ask(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
        with (
            socket.create_connection(agent.address, timeout=GENEROUS) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as sock,
        ):
            sock.sendall(REQUEST)
            return sock.recv(1000), sock.session

    reply, session = ask(None)
    assert reply.startswith(b"HTTP/1.1 200")
    wait_for(lambda: time.time() > ends + 1, "the certificate has expired")
    try:
        reply, _ = ask(session)
    except OSError:
        reply = b""
    assert reply == b""


def replace(path: Path, content: bytes) -> None:
    (new := path.with_suffix(".new")).write_bytes(content)
    new.replace(path)


def test_a_renewed_certificate_is_taken_over_without_a_restart(
    secure: Secure, authority: Authority, tmp_path: Path
) -> None:
    first, second = authority.issue(), authority.issue()
    mine = Issued(tmp_path / "cert.pem", tmp_path / "cert.key")
    replace(mine.certificate, first.certificate.read_bytes())
    replace(mine.key, first.key.read_bytes())
    agent = secure(mine)
    before = served_serial(agent, authority)
    # The key arrives first: until the certificate follows, the old pair stays in force.
    replace(mine.key, second.key.read_bytes())
    for _ in range(3):
        assert served_serial(agent, authority) == before
    replace(mine.certificate, second.certificate.read_bytes())
    wait_for(lambda: served_serial(agent, authority) != before, "the new certificate is served")


def test_a_broken_change_keeps_the_last_good_configuration_and_is_logged_once(
    secure: Secure, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = secure()
    with caplog.at_level(logging.WARNING):
        replace(tmp_path / "web.yml", b"tls_server_config: {cert_file: nowhere")

        def warned() -> bool:
            assert get(agent, trusting(authority)) == 200
            return "keeping the last good configuration" in caplog.text

        wait_for(warned, "the broken file was noticed")
        replace(tmp_path / "web.yml", b"")  # would mean clear text from now on

        def warned_again() -> bool:
            assert get(agent, trusting(authority)) == 200
            return "by a restart only" in caplog.text

        wait_for(warned_again, "the missing TLS was noticed")
    assert caplog.text.count("not valid YAML") == 1


def test_a_handshake_that_never_comes_blocks_neither_the_others_nor_the_end(
    secure: Secure, authority: Authority
) -> None:
    agent = secure()
    with agent.connect() as silent, agent.connect() as begun:
        begun.sendall(b"\x16\x03\x01")
        assert get(agent, trusting(authority)) == 200
        agent.server.close()
        for sock in (silent, begun):
            with suppress(ConnectionResetError):
                assert sock.recv(100) == b""


def test_garbage_for_a_handshake_harms_nobody(secure: Secure, authority: Authority) -> None:
    agent = secure()
    for garbage in (b"\x16" + bytes(range(256)), b"\x16\x03\x01\xff\xff" + b"a" * 70_000):
        with suppress(ConnectionError):
            agent.send(garbage)
    assert get(agent, trusting(authority)) == 200


def test_an_older_version_than_asked_for_is_refused(secure: Secure, authority: Authority) -> None:
    agent = secure(min_version="TLS13")
    old = trusting(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        get(agent, old)
    assert get(agent, trusting(authority)) == 200
