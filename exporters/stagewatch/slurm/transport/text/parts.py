"""Parts that the parsers of Slurm's text output share."""

from __future__ import annotations

from collections.abc import Iterator

FIELD = "\x1f"
RECORD = "\x1e"
_NOTHING = frozenset(("", "N/A", "NONE", "None", "Unknown", "UNKNOWN", "(null)", "n/a", "INVALID"))


def seconds(text: str) -> int | None:
    """A time under SLURM_TIME_FORMAT=%s; `None` where Slurm does not know it."""
    if text in _NOTHING or not text.isdecimal():
        return None
    value = int(text)
    return value if 0 < value < 0xFFFFFFFE else None


def number(text: str) -> int:
    """A count that may be missing, then 0."""
    return int(text) if text.isdecimal() else 0


def known(text: str) -> str:
    """A name, empty where there is none."""
    text = text.strip()
    return "" if text in _NOTHING else text


def records(output: bytes, fields: int) -> Iterator[tuple[list[str] | None, int]]:
    """The records of output with our own separators; `None` for one of another shape.

    Equal neighbours, such as the pending tasks of an array, come once with their number.  One
    record at a time is taken apart: all of them at once would need ten times the output's size.
    """
    for raw, times in _chunks(output):
        values = raw.decode(errors="replace").split(FIELD)
        if len(values) == fields:
            yield values, times
        elif raw.strip():
            yield None, times


def _chunks(output: bytes) -> Iterator[tuple[bytes, int]]:
    """What lies between separators, without ever holding all of it twice."""
    separator = RECORD.encode()
    last, times, start = b"", 0, 0
    while start < len(output):
        end = output.find(separator, start)
        end = len(output) if end < 0 else end
        chunk = output[start:end].lstrip(b"\n")
        start = end + 1
        if chunk == last:
            times += 1
            continue
        if times:
            yield last, times
        last, times = chunk, 1
    if times:
        yield last, times


def split_pairs(line: str) -> Iterator[tuple[str, str]]:
    """Names and values of `A=1 B=two words C=3`, as far as values hold no ` Name=` themselves."""
    name = ""
    words: list[str] = []
    for word in line.split(" "):
        key, equals, value = word.partition("=")
        if equals and key[:1].isupper() and key.replace("_", "").replace(":", "").isalnum():
            if name:
                yield name, " ".join(words)
            name, words = key, [value]
        else:
            words.append(word)
    if name:
        yield name, " ".join(words)
