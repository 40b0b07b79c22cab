"""What is said of a server that gave no answer, by real sockets where one can be made to fail."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import requests
import urllib3

from stagewatch.core.errors import SourceError
from stagewatch.demo.stack import free_port
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.failure import why_unanswered

Serve = Callable[[socket.socket], None]


@contextmanager
def listener(serve: Serve) -> Iterator[int]:
    """The port of a server that does one thing with its only client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def once() -> None:
            connection, _ = server.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=once, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)


def said(url: str, timeout: float = 30.0) -> str:
    """What is told where this server is asked."""
    api = PrometheusApi(url, timeout=timeout)
    with pytest.raises(SourceError) as caught:
        api.query("up")
    api.close()
    assert str(caught.value).startswith(f"{url} does not answer: ")
    return str(caught.value).removeprefix(f"{url} does not answer: ")


def test_refused() -> None:
    assert said(f"http://127.0.0.1:{free_port()}") == "connection refused"


def test_plain_http_where_tls_was_asked_for() -> None:
    def plain(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with listener(plain) as port:
        assert said(f"https://127.0.0.1:{port}").startswith("TLS: ")


def made(error: Exception) -> requests.ConnectionError:
    """As requests and urllib3 wrap it."""
    pool = urllib3.HTTPConnectionPool("x", 1)
    return requests.ConnectionError(urllib3.exceptions.MaxRetryError(pool, "/secret", error))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (made(socket.gaierror(-2, "Name or service not known")), "name or service not known"),
        (made(OSError(113, "No route to host")), "no route to host"),
        (requests.ConnectTimeout(), "nothing within 10 s"),
        (requests.TooManyRedirects(), "TooManyRedirects"),
        (requests.exceptions.ProxyError(made(ConnectionRefusedError(111, "Connection refused"))),
         "by its proxy: connection refused"),
        (requests.RequestException("long"), "RequestException"),
    ],
)  # fmt: skip
def test_what_no_socket_here_can_show(error: requests.RequestException, expected: str) -> None:
    assert why_unanswered(error, 10.0) == expected
