"""Requests and responses as bytes and as values, apart from any socket.

The parser accepts only what RFC 9112 allows a client to send: it refuses folded headers, bare
carriage returns and spaces before a colon, while other parsers guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus

PLAIN_TEXT = "text/plain; charset=utf-8"
MAX_HEADERS = 100

_REQUEST_LINE = re.compile(
    rb"([A-Z]{1,16}) (?:https?://[!-\"$-.0->@-~]*)?"  # a method; an absolute target's authority
    rb"(\*|/[!-\"$->@-~]*|)(?:\?[!-\"$-~]*)?"  # path, and a query that no page reads, all printable
    rb" HTTP/1\.([01])\r?\n"
)
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)\r?\n")


class Refused(Exception):
    """A request that gets no page, with a status and a text that say why."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """A whole request; header names are in lower case, and values of a repeated one are joined."""

    method: str
    path: str
    """As sent, neither decoded nor normalised: it either is one of our paths or it is not."""
    headers: Mapping[str, str]
    keep_alive: bool = False
    """Whether the client can send another request on the same connection."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    held: object = None
    """What lives as long as somebody sends this response, also with other headers."""
    in_gzip: Callable[[], bytes] | None = None
    """Makes the body in gzip; without it, the body is compressed as a whole."""

    def last(self) -> bytes:
        """All bytes of a response behind which the connection ends."""
        return self.head(keep_alive=False) + self.body

    def head(self, *, keep_alive: bool) -> bytes:
        """Those in front of the body."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Date: {formatdate(usegmt=True)}",
            "Server: stagewatch",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


Answer = Callable[[Request], Response]


def plain(status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """A short answer in words."""
    return Response(status, PLAIN_TEXT, f"{text}\n".encode("utf-8", "replace"), headers or {})


def parse_head(head: bytes) -> Request:
    """Read a request's line and headers, up to and with the empty line.

    Raises `Refused` for a malformed head, and for a body, since no page takes one.
    """
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise Refused(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    position = line.end()
    count = 0
    while head[position : position + 2] not in (b"\r\n", b"\n"):
        header = _HEADER.match(head, position)
        count += 1
        if header is None:
            raise Refused(HTTPStatus.BAD_REQUEST, "malformed header")
        if count > MAX_HEADERS:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers")
        name = header[1].decode("ascii").lower()
        value = header[2].decode("latin-1").strip(" \t")
        if name == "host" and name in headers:
            raise Refused(HTTPStatus.BAD_REQUEST, "two Host headers")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
        position = header.end()
    if line[3] == b"1" and "host" not in headers:
        raise Refused(HTTPStatus.BAD_REQUEST, "no Host header")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "requests have no body here")
    options = [option.strip() for option in headers.get("connection", "").lower().split(",")]
    return Request(
        method=line[1].decode("ascii"),
        path=line[2].decode("ascii") or "/",
        headers=headers,
        keep_alive=line[3] == b"1" and "close" not in options,
    )
