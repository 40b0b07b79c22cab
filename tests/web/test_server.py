"""What hostile, slow and broken clients meet."""

from __future__ import annotations

import http.client
import re
import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from stagewatch.core.runner import Runner
from stagewatch.web.agent_server import AgentServer
from stagewatch.web.connection import Connection, Limits
from stagewatch.web.message import PLAIN_TEXT
from tests.waiting import wait_for
from tests.web.http_helpers import GENEROUS, Agent, Serve, read_all
from tests.web.status_scenes import gpus

REQUEST = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"
CLOSING = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def status(reply: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", reply)
    assert found, reply[:200]
    return int(found[1])


def http_threads() -> int:
    return sum(thread.name.startswith("http-") for thread in threading.enumerate())


def test_a_request_is_understood_or_refused(serve: Serve) -> None:
    cases = [
        (b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200),
        (b"GET /-/healthy HTTP/1.1\nHost: x\nConnection: close\n\n", 200),
        (b"\r\n\r\nGET /-/healthy HTTP/1.0\r\n\r\n", 200),
        (b"GET http://other.example:80/-/healthy HTTP/1.0\r\n\r\n", 200),
        (b"HEAD /-/healthy HTTP/1.0\r\n\r\n", 200),
        (b"GET /-/healthy HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400),  # RFC 9112, section 3.2
        (b"GET /-/healthy\r\n\r\n", 400),  # HTTP/0.9
        (b"GET /-/healthy HTTP/2.0\r\nHost: x\r\n\r\n", 400),
        (b"get /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /-/healthy\x00 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rSet-Cookie: c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", 400),  # TLS to a plain port
    ]
    agent = serve({"gpu": gpus})
    for request, expected in cases:
        assert status(agent.send(request)) == expected, request
    assert agent.get("/-/healthy").status == 200


def test_a_request_with_a_body_is_refused_and_the_connection_ends(serve: Serve) -> None:
    agent = serve()
    for body in (
        b"Content-Length: 99999999999\r\n\r\n" + b"x" * 200_000,
        b"Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ):
        reply = agent.send(b"POST /metrics HTTP/1.1\r\nHost: x\r\n" + body)
        assert status(reply) == 413
        assert b"Connection: close" in reply


def small_sender(agent: Agent) -> socket.socket:
    """A connection whose sender notices a reset, since little fits into its buffer."""
    sock = socket.socket()
    sock.settimeout(GENEROUS)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sock.connect(agent.address)
    return sock


def test_endless_headers_are_cut_off_and_the_client_can_read_why(serve: Serve) -> None:
    agent = serve()
    with small_sender(agent) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Fill: " + b"a" * 900_000)
        reply = read_all(sock)
    assert status(reply) == 431
    assert agent.get("/-/healthy").status == 200


def test_a_request_that_trickles_in_is_ended_however_steadily_it_does(serve: Serve) -> None:
    agent = serve(limits=Limits(head_seconds=0.4))
    with agent.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        sock.settimeout(0.02)
        reply = b""
        for _ in range(3000):  # far more than the limit, were each byte to renew it
            try:
                sock.sendall(b"a")
                reply = sock.recv(1000)
                break
            except TimeoutError:
                continue
    assert status(reply) == 408


def test_a_client_that_does_not_read_is_let_go(serve: Serve) -> None:
    big = b"x" * 30_000_000
    agent = serve(routes={"/big": lambda: (PLAIN_TEXT, big)}, limits=Limits(send_seconds=0.3))
    with closing(socket.socket()) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(GENEROUS)
        sock.connect(agent.address)
        before = http_threads()
        sock.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert agent.get("/metrics").status == 200
        wait_for(
            lambda: http_threads() < before or http_threads() <= 1, "the slow reader is let go"
        )
        with pytest.raises(ConnectionError):
            raise ConnectionError if len(read_all(sock)) < len(big) else AssertionError


def test_a_flood_is_answered_503_and_a_place_is_kept_for_other_hosts(serve: Serve) -> None:
    agent = serve(limits=Limits(connections=4, connections_per_peer=3))
    with ExitStack() as stack:
        held = [stack.enter_context(agent.connect()) for _ in range(3)]
        for sock in held:
            sock.sendall(b"GET / HTTP/1.1\r\n")  # begun, so not idle
        wait_for(lambda: http_threads() >= 4, "the connections are open")
        for _ in range(100):
            assert status(agent.send(CLOSING)) == 503
        with small_sender(agent) as verbose:  # still sending while it is refused
            verbose.sendall(REQUEST + b"a" * 100_000)
            assert status(read_all(verbose)) == 503
        other = stack.enter_context(closing(socket.socket()))
        other.settimeout(GENEROUS)
        other.bind(("127.0.0.2", 0))
        other.connect(agent.address)
        other.sendall(CLOSING)
        assert status(read_all(other)) == 200
    wait_for(lambda: status(agent.send(CLOSING)) == 200, "a place is free again")


def test_slow_clients_of_many_addresses_give_way_to_a_scraper(serve: Serve) -> None:
    """Every user of a machine has the whole network 127.0.0.0/8 to come from."""
    agent = serve(limits=Limits(connections=4, connections_per_peer=2))
    with ExitStack() as stack:
        for number in range(2, 6):
            slow = stack.enter_context(closing(socket.socket()))
            slow.bind((f"127.0.0.{number}", 0))
            slow.connect(agent.address)
            slow.sendall(b"GET / HTTP/1.1\r\n")
        wait_for(lambda: http_threads() >= 5, "the connections are open")
        wait_for(lambda: status(agent.send(CLOSING)) == 200, "the slowest has given way")


def test_an_idle_connection_gives_way_to_a_new_client(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, answered = threading.Semaphore(0), Connection.answered

    def note(connection: Connection) -> None:
        answered(connection)
        idle.release()

    monkeypatch.setattr(Connection, "answered", note)
    agent = serve(limits=Limits(connections=2, connections_per_peer=2))
    with agent.connect() as first, agent.connect() as second:
        for sock in (first, second):
            sock.sendall(REQUEST)
            assert status(sock.recv(1000)) == 200
            assert idle.acquire(timeout=GENEROUS)  # the server knows it, too
        wait_for(lambda: status(agent.send(CLOSING)) == 200, "an idle connection gives way")
        assert first.recv(1000) == b""  # the one that was idle longest
        second.sendall(REQUEST)
        assert status(second.recv(1000)) == 200


def test_a_thousand_hasty_clients_leave_nothing_behind(serve: Serve) -> None:
    agent = serve()
    files = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(1000):
        with agent.connect() as sock:
            if number % 3:
                sock.sendall(REQUEST[: number % 30])
            if number % 5 == 0:  # a reset instead of an end
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    wait_for(lambda: http_threads() == 1, "every connection has ended")
    wait_for(
        lambda: len(list(Path("/proc/self/fd").iterdir())) <= files, "every descriptor is closed"
    )
    assert agent.get("/-/healthy").status == 200


def test_closing_ends_every_connection_and_thread(serve: Serve) -> None:
    agent = serve(limits=Limits(head_seconds=600, idle_seconds=600, send_seconds=600))
    with agent.connect() as silent, agent.connect() as begun, agent.connect() as idle:
        begun.sendall(b"GET / HT")
        idle.sendall(REQUEST)
        assert status(idle.recv(1000)) == 200
        wait_for(lambda: http_threads() == 4, "the connections are open")
        agent.server.close()
        assert [read_all(sock) for sock in (silent, begun, idle)] == [b""] * 3
        wait_for(lambda: http_threads() == 0, "every thread has ended")
    with pytest.raises(ConnectionRefusedError):
        agent.connect()


def bind(address: tuple[str, int]) -> AgentServer:
    return AgentServer(address, Runner([]), node="n")


@pytest.mark.parametrize(
    ("host", "reachable"),
    [("127.0.0.1", {"127.0.0.1"}), ("::1", {"::1"}), ("", {"127.0.0.1", "::1"})],
)
def test_it_listens_where_it_was_asked_to_and_nowhere_else(host: str, reachable: set[str]) -> None:
    server = bind((host, 0))
    server.start()
    try:
        answering = set()
        for target in ("127.0.0.1", "::1"):
            client = http.client.HTTPConnection(target, server.port, timeout=GENEROUS)
            try:
                client.request("GET", "/-/healthy")
                if client.getresponse().status == 200:
                    answering.add(target)
            except ConnectionRefusedError:
                pass
            finally:
                client.close()
        assert answering == reachable
    finally:
        server.close()
