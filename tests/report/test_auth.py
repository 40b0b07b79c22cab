"""A server that wants to know who asks."""

from __future__ import annotations

import base64
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.cli import main

EXPECTED = {
    "Bearer s3cret": ["--bearer-token-file", "s3cret\n"],
    f"Basic {base64.b64encode(b'me:pass word').decode()}": ["--basic-auth-file", "me:pass word\n"],
}


class Server:
    """Refuses everything, and remembers what it was told."""

    def __init__(self) -> None:
        self.headers: list[str | None] = []
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.headers.append(self.headers["Authorization"])
                body = b'{"status": "error", "error": "who are you?"}'
                self.send_response(401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Quiet."""

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.mark.parametrize("header", EXPECTED)
def test_a_secret_is_read_from_its_file_and_never_shown(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], header: str
) -> None:
    flag, content = EXPECTED[header]
    file = tmp_path / "secret"
    file.write_text(content)
    given = ["report", "experiment", "--prometheus", server.url, "--fault", "x"]
    assert main([*given, "--output", str(tmp_path / "o"), flag, str(file)]) == 1
    assert server.headers == [header]
    said = capsys.readouterr().err
    assert "who are you?" in said
    assert content.strip() not in said


@pytest.mark.parametrize("content", [None, "", "two\nlines"])
def test_a_secret_that_is_none_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    given = ["report", "recovery", "--output", str(tmp_path / "o"), "--bearer-token-file"]
    assert main([*given, str(file)]) == 2
    assert "--bearer-token-file" in capsys.readouterr().err
