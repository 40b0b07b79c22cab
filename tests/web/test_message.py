"""The request parser against whatever bytes there are."""

from __future__ import annotations

import http.client
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.web.message import Refused, parse_head

TOKEN = st.text("abcXYZ-09!#$%&'*+.^_`|~", min_size=1, max_size=12)
VALUE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
TARGET = st.from_regex(r"/[!-\"$->@-~]{0,20}(\?[!-\"$-~]{0,20})?", fullmatch=True)


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused(noise: bytes) -> None:
    try:
        parse_head(noise + b"\r\n\r\n")
    except Refused as refusal:
        assert 400 <= refusal.status < 500


@given(st.binary(max_size=80))
def test_noise_within_a_header_never_becomes_another_header(noise: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + noise.replace(b"\n", b"") + b"\r\n\r\n"
    try:
        assert set(parse_head(head).headers) == {"host", "x"}
    except Refused as refusal:
        assert refusal.status == 400


@given(TARGET, st.lists(st.tuples(TOKEN, VALUE), max_size=8))
def test_it_agrees_with_the_standard_librarys_parser(
    target: str, fields: list[tuple[str, str]]
) -> None:
    fields = [(name, value) for name, value in fields if name.lower() not in ("host", "connection")]
    lines = "".join(f"{name}: {value}\r\n" for name, value in [("Host", "x"), *fields])
    request = parse_head(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))
    parsed = http.client.parse_headers(io.BytesIO(f"{lines}\r\n".encode("latin-1")))
    path = target.partition("?")[0]
    assert request.path == path
    assert request.headers == {
        name.lower(): ", ".join(value.strip(" \t") for value in parsed.get_all(name, []))
        for name in parsed
    }


@pytest.mark.parametrize(
    ("line", "keep_alive"),
    [
        ("GET / HTTP/1.1\r\nHost: x", True),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: Close", False),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: TE, close", False),
        ("GET / HTTP/1.0\r\nConnection: keep-alive", False),
    ],
)
def test_connections_are_kept_only_where_the_client_can(line: str, keep_alive: bool) -> None:
    assert parse_head(f"{line}\r\n\r\n".encode()).keep_alive is keep_alive
