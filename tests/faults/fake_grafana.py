"""Grafana's annotations API, as far as its documentation goes, on a local port."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "glsa_of_the_test"


class FakeGrafana:
    """Keeps annotations; `fail` answers so many requests with a status instead.

    With `lose` it does what it was asked and then ends the connection without an answer.
    """

    def __init__(self, port: int = 0) -> None:
        self.annotations: dict[int, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.fail: list[int] = []
        self.lose = 0
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                fake._answer(self, "POST")

            def do_PATCH(self) -> None:
                fake._answer(self, "PATCH")

            def do_GET(self) -> None:
                fake._answer(self, "GET")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: BaseHTTPRequestHandler, method: str) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length)) if length else {}
        self.requests.append(method)
        if request.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._say(request, 401, {"message": "Invalid API key"})
        if self.fail:
            return self._say(request, self.fail.pop(0), {"message": "as asked"})
        where = urlsplit(request.path)
        content: Any
        if method == "GET":
            wanted = parse_qs(where.query)
            content = [
                {"id": id, **each}
                for id, each in self.annotations.items()
                if set(wanted["tags"]) <= set(each["tags"])
                and int(wanted["from"][0]) <= each["time"] <= int(wanted["to"][0])
            ]
        elif method == "POST":
            id = len(self.annotations) + 1
            self.annotations[id] = body
            content = {"message": "Annotation added", "id": id}
        else:
            id = int(where.path.rpartition("/")[2])
            if id not in self.annotations:
                return self._say(request, 404, {"message": "Annotation not found"})
            self.annotations[id] |= body
            content = {"message": "Annotation patched"}
        if self.lose:
            self.lose -= 1
            request.close_connection = True
            return None
        return self._say(request, 200, content)

    def _say(self, request: BaseHTTPRequestHandler, status: int, content: Any) -> None:
        text = json.dumps(content).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)
