"""Takes what Alertmanager sends: posts of every kind, and mail."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Listener:
    """Takes whatever is posted, and mail, and remembers it."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str], str]] = []
        self.mails: list[str] = []
        self.times: list[float] = []
        self.mail_times: list[float] = []
        """When each post and each mail came, as Unix time."""
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                listener.times.append(time.time())
                listener.posts.append((self.path, dict(self.headers), body))
                reply = b"<PublishResponse><PublishResult/></PublishResponse>"
                self.send_response(202 if self.path == "/pagerduty" else 200)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                with contextlib.suppress(OSError):  # it waits no longer
                    self.wfile.write(reply)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._smtp = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self.smarthost = f"127.0.0.1:{self._smtp.getsockname()[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        threading.Thread(target=self._take_mail, daemon=True).start()

    def to(self, path: str) -> list[str]:
        """The bodies that were posted there."""
        return [body for where, _, body in self.posts if where == path]

    def close(self) -> None:
        """Listen no longer."""
        self._http.shutdown()
        self._http.server_close()
        self._smtp.close()

    def _take_mail(self) -> None:
        while True:
            try:
                connection, _ = self._smtp.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection, connection.makefile("rwb") as file:
                self._converse(file)

    def _converse(self, file: Any) -> None:
        def say(text: str) -> None:
            file.write(f"{text}\r\n".encode())
            file.flush()

        say("220 listener")
        while line := file.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                say("354 go on")
                text = b""
                while (part := file.readline()) not in (b".\r\n", b""):
                    text += part.removeprefix(b".")  # a dot doubled, RFC 5321 4.5.2
                if not part:  # the sender gave up in the middle
                    return
                self.mail_times.append(time.time())
                self.mails.append(text.decode())
            say("221 bye" if verb == b"QUIT" else "250 fine")
            if verb == b"QUIT":
                return
