"""slurmrestd over HTTP: tokens, versions, failures, slow servers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stagewatch.core.errors import NoData, SourceError, Stuck
from stagewatch.slurm.transport.rest import HttpFailure, HttpReader, SlurmRest
from tests.waiting import wait_for

FIXTURE = Path(__file__).parents[2] / "fixtures" / "slurm" / "24.11-v0.0.42.json"
Answer = tuple[int, bytes]


class Server:
    """An HTTP server whose answers the test gives; it remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.answer: Callable[[str], Answer] = lambda path: (404, b"")
        self.location = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, dict(self.headers)))
                status, body = outer.answer(self.path)
                self.send_response(status)
                if outer.location:
                    self.send_header("Location", outer.location)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that knows nothing yet."""
    server = Server()
    yield server
    server.close()


def slurmrestd(path: str, versions: tuple[int, ...] = (40, 41, 42, 99)) -> Answer:
    """What a slurmrestd of 24.11 answers."""
    if path == "/openapi/v3":
        paths = {f"/slurm/v0.0.{number}/jobs": {} for number in versions}
        return 200, json.dumps({"paths": paths}).replace("/", "\\/").encode()
    parts = json.loads(FIXTURE.read_text())
    name = path.partition("?")[0].rpartition("/")[2]
    if path.startswith("/slurm/v0.0.42/") and name in parts:
        return 200, json.dumps(parts[name]).encode()
    if path.startswith("/slurmdb/v0.0.42/jobs"):
        return 200, json.dumps(parts["slurmdb_jobs"]).encode()
    return 404, b'{"errors": [{"description": "Unable to find requested URL"}]}'


def client(server: Server, **options: Any) -> SlurmRest:
    """A client of that server."""
    return SlurmRest(lambda: HttpReader(server.url, **options), wall=lambda: 1750001000.0)


def test_newest_version_that_both_know_is_used(server: Server) -> None:
    """Not one whose shapes are unknown."""
    server.answer = slurmrestd
    rest = client(server)
    assert len(rest.jobs(10).items) == 8
    assert len(rest.nodes(10).items) == 5
    assert rest.diagnostics(10).values["dbd_agent_queue_size"] == 5
    assert [each.up for each in rest.ping(10)] == [True, False]
    assert [path for path, _ in server.asked][:2] == ["/openapi/v3", "/slurm/v0.0.42/jobs"]
    rest.close()


def test_server_without_accounting_or_with_an_old_version_has_none(server: Server) -> None:
    """Not a failure; the queue tells what it can."""
    server.answer = lambda path: (404, b"") if path.startswith("/slurmdb") else slurmrestd(path)
    with pytest.raises(NoData, match="no accounting"):
        client(server).ended_jobs(10, 600)
    server.answer = lambda path: slurmrestd(path, (38,))
    with pytest.raises(NoData, match="requeued"):
        client(server).ended_jobs(10, 600)


def test_token_is_read_anew_and_never_shown(server: Server, tmp_path: Path) -> None:
    """A JWT is renewed under the agent; `scontrol token` prints it with a prefix."""
    token = tmp_path / "token"
    token.write_text("SLURM_JWT=first\n")
    server.answer = slurmrestd
    rest = client(server, user="monitor", token_file=token)
    rest.jobs(10)
    token.write_text("second")
    rest.jobs(10)
    sent = [headers.get("X-SLURM-USER-TOKEN") for _, headers in server.asked]
    assert (sent[0], sent[-1]) == ("first", "second")
    assert server.asked[-1][1]["X-SLURM-USER-NAME"] == "monitor"
    server.answer = lambda path: (401, b'{"errors": [{"error": "Authentication failure"}]}')
    with pytest.raises(SourceError) as caught:
        rest.jobs(10)
    assert str(caught.value) == "slurmrestd: HTTP status 401: Authentication failure"
    token.unlink()
    with pytest.raises(SourceError, match="the token cannot be read"):
        rest.jobs(10)


def test_redirects_and_proxies_are_not_followed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token goes to the server it is meant for, and nowhere else."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.location = "http://127.0.0.1:1/elsewhere"
    server.answer = lambda path: (302, b"")
    with pytest.raises(HttpFailure, match="302"):
        HttpReader(server.url).get("/x", 10)


def test_answer_that_is_too_large_is_refused(server: Server) -> None:
    """Before it fills the memory."""
    server.answer = lambda path: (200, b"x" * 3_000_000)
    with pytest.raises(SourceError, match="more than 1 MiB"):
        HttpReader(server.url, max_body=1 << 20).get("/x", 30)


def test_server_that_drips_is_given_up_in_time_and_asked_once() -> None:
    """Each byte comes before any socket's time-out; the whole never does."""
    stop = threading.Event()
    accepted: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listener.accept()
        accepted.append(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not stop.wait(0.05):
            try:
                connection.sendall(b"x")
            except OSError:
                return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    reader = HttpReader(f"http://127.0.0.1:{listener.getsockname()[1]}")
    try:
        with pytest.raises(SourceError, match="gave no answer within 1 s"):
            reader.get("/x", 1)
        with pytest.raises(Stuck, match="has not come to its end"):
            reader.get("/x", 1)
        assert len(accepted) == 1
    finally:
        stop.set()
        thread.join(60)
        for connection in accepted:
            connection.close()
        listener.close()
    assert reader._call is not None
    wait_for(reader._call.done.is_set, "the given-up request to end")
