"""The kinds of lines in logs: named regular expressions, with words that make the search fast.

For workers of the helper process: standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LINE = 4096
"""The bytes of a line that are searched."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of line.  With `words`, only lines that contain one of them are searched."""

    name: str
    regex: re.Pattern[bytes]
    words: tuple[bytes, ...] = ()

    def lines(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """The lines of a chunk that match, with their positions, in order; `cut` has cut them."""
        last = -1
        for at in sorted(set(self._places(chunk))):
            if at <= last:
                continue
            begin = chunk.rfind(b"\n", 0, at) + 1
            end = chunk.find(b"\n", at)
            last = len(chunk) if end < 0 else end
            line = chunk[begin:last]
            if self.regex.search(line):
                yield begin, line

    def _places(self, chunk: bytes) -> Iterator[int]:
        if not self.words:
            yield from (found.start() for found in self.regex.finditer(chunk))
        for word in self.words:
            at = chunk.find(word)
            while at >= 0:
                yield at
                end = chunk.find(b"\n", at)
                at = -1 if end < 0 else chunk.find(word, end)


def cut(lines: bytes) -> bytes:
    """The lines, each cut at the limit."""
    return b"\n".join([line[:MAX_LINE] for line in lines.split(b"\n")])


def _known(name: str, regex: bytes, *words: bytes) -> Pattern:
    return Pattern(name, re.compile(regex), words)


KNOWN = (
    _known(
        "cuda_oom",
        rb"CUDA (?:error: )?out of memory|\bOutOfMemoryError\b|CUDA_ERROR_OUT_OF_MEMORY",
        b"out of memory",
        b"OutOfMemoryError",
        b"OUT_OF_MEMORY",
    ),
    _known(
        "nccl_timeout",
        # From the last word on: a line full of NCCL would otherwise be searched 200 times.
        rb"collective operation timeout|(?:NCCL|ProcessGroup)(?:(?!NCCL|ProcessGroup).){0,200}?"
        rb"[Tt]ime(?:d )?[- ]?[Oo]ut",
        b"NCCL",
        b"ProcessGroup",
        b"collective operation timeout",
    ),
    _known(
        "http_5xx",
        rb"HTTP/[\d.]+\"? 5\d\d\b|status(?:_code)?[\"']?[=: ]+5\d\d\b|"
        rb"\b50[0-4] (?:Internal Server|Not Implemented|Bad Gateway|Service Unav|Gateway Time)",
        b"HTTP/",
        b"status",
        b"Server Error",
        b"Bad Gateway",
        b"Service Unavailable",
        b"Gateway Time",
    ),
    _known(
        "request_timeout",
        rb"[Rr]equest [Tt]ime(?:d )?[- ]?out|Read(?:Time[Oo]ut|timeoutError)|Connect[Tt]imeout|"
        rb"[Rr]ead timed out|deadline exceeded|DEADLINE_EXCEEDED",
        b"equest ",
        b"timed out",
        b"Timeout",
        b"TimeOut",
        b"eadline",
        b"DEADLINE",
    ),
    _known(
        "killed",
        rb"(?:^|[\s:(])Killed(?:$|[\s:)])|SIGKILL|[Ss]ignal:? 9\b|exit ?code:? -9\b|oom[-_ ]kill",
        b"Killed",
        b"SIGKILL",
        b"ignal",
        b"-9",
        b"oom",
    ),
    _known("traceback", rb"Traceback \(most recent call last\)", b"Traceback (most"),
)
"""The patterns that are searched unless others are configured."""


def user_pattern(text: str) -> Pattern:
    """The pattern `name=regular expression`.  Raises `ValueError`."""
    name, equals, regex = text.partition("=")
    if not equals or not regex or not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
        raise ValueError
    try:
        compiled = re.compile(regex.encode(), re.MULTILINE)
    except re.error as error:
        raise ValueError from error
    literal = re.escape(regex) == regex or not re.search(r"[\\.^$*+?{}\[\]|()]", regex)
    return Pattern(name, compiled, (regex.encode(),) if literal else ())
