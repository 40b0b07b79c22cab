"""Servers on ports of their own: of the web, which answers as a test has it, and of mail."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """What a client asks."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Reply(NamedTuple):
    """What it is told."""

    body: bytes = b""
    status: int = 200
    kind: str = "text/plain"


class WebServer:
    """Serves until it is closed; requests may come at the same time."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def reply(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                told = answer(Request(self.command, self.path, self.headers, body))
                with contextlib.suppress(OSError):  # who has asked may wait no longer
                    self.send_response(told.status)
                    self.send_header("Content-Type", told.kind)
                    self.send_header("Content-Length", str(len(told.body)))
                    self.end_headers()
                    self.wfile.write(told.body)

            do_GET = do_POST = do_PATCH = reply

            def log_message(self, format: str, *arguments: object) -> None:
                """Quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self.http.server_port
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"
        self._thread = threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Serve no longer."""
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()


class MailServer:
    """Takes whatever is sent, as RFC 5321 has it."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, str]] = []
        """The last recipient and the text of each."""
        mails = self.mails

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):  # the sender gave up in the middle
                    self._converse()

            def _converse(self) -> None:
                self._say("220 listener")
                to = ""
                while line := self.rfile.readline().decode():
                    word = line[:4].upper().strip()
                    if word == "RCPT":
                        to = line.partition("<")[2].partition(">")[0]
                    if word == "DATA":
                        self._say("354 go on")
                        text = b""
                        while (part := self.rfile.readline()) not in (b".\r\n", b""):
                            text += part.removeprefix(b".")  # a dot doubled, RFC 5321 4.5.2
                        if not part:
                            return
                        mails.append((to, text.decode()))
                    self._say("221 bye" if word == "QUIT" else "250 fine")
                    if word == "QUIT":
                        return

            def _say(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """Take no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
