"""Inputs made worse: bytes as a broken disk or a hostile user writes them, and values of JSON."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Sequence
from typing import Any

TOKENS = (
    b"", b"\0", b"\n", b"\r\n", b"\xff\xfe", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\x1b[2J",
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b";", b"=", b"|", b"#", b"%s", b"\\x0a",
    b" State=DOWN Gres=gpu:8 ", b'"} 1\nforged{x="', b"../../etc/passwd", b"-1", b"0", b"1e999",
    b"18446744073709551616", b"9" * 400, b"NaN", b"Infinity", b"null", b"true", b"[0-99999999]",
    b"n[1-2][3-4]", b"(x@1)", b"a" * 5000, "۴٢".encode(), "ſK".encode(),
)  # fmt: skip
"""What parsers stumble over: ends, quotes, numbers too large, digits that are not ASCII."""

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 2**63, 10**400, -0.5, 1e308, math.nan, math.inf, -math.inf, "", "x",
    "\ud800", "\n", "9" * 5000, [], {}, [[]], [None], {"": None}, {"a": {"a": {}}},
)  # fmt: skip


def flipped(data: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, as a disk or memory does it."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def mutated(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the seeds with one to four changes."""
    data = chance.choice(seeds)
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.choice((0, 1, 2, 8, 64, 1024)))
        kind = chance.randrange(7)
        if kind == 0:
            data = flipped(data, chance)
        elif kind == 1:  # cut off
            data = data[:start]
        elif kind == 2:  # a part is lost
            data = data[:start] + data[end:]
        elif kind == 3:  # a part is there twice
            data = data[:end] + data[start:]
        elif kind == 4:  # the end of another one
            other = chance.choice(seeds)
            data = data[:start] + other[chance.randint(0, len(other)) :]
        else:
            data = data[:start] + chance.choice(TOKENS) + data[end:]
    return data


def changed_value(content: Any, chance: random.Random) -> Any:
    """JSON with one value somewhere in it replaced, removed or doubled."""
    content = copy.deepcopy(content)
    at = content
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return chance.choice(VALUES)
        key = chance.choice(keys)
        if isinstance(at[key], dict | list) and at[key] and chance.random() < 0.8:
            at = at[key]
            continue
        kind = chance.randrange(4)
        if kind == 0:
            del at[key]
        elif kind == 1 and isinstance(at, list):
            at.append(at[key])
        else:
            at[key] = chance.choice(VALUES)
        return content


def mutated_json(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """Every other time a sound file with a value that is not, else bytes changed."""
    if chance.random() < 0.5:
        return mutated(seeds, chance)
    return json.dumps(changed_value(json.loads(chance.choice(seeds)), chance)).encode()
