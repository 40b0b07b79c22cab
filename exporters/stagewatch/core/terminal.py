"""What output to a person's terminal takes: its width, whether it may be coloured, tables."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Collection, Sequence
from typing import TextIO


def colours(stream: TextIO) -> bool:
    """Whether to colour output: on a terminal, unless a variable decides otherwise.

    `NO_COLOR` wins over `FORCE_COLOR`, and an empty one counts as none, as in Python itself:
    https://docs.python.org/3/using/cmdline.html#controlling-color
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def bold(text: str, on: bool = True) -> str:
    """The text in bold, where colours are on."""
    return f"\033[1m{text}\033[0m" if on else text


def red(text: str, on: bool = True) -> str:
    """The text in red, where colours are on."""
    return f"\033[31m{text}\033[0m" if on else text


def columns(stream: TextIO) -> int | None:
    """The width of the terminal behind a stream; `None` if it is no terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def wrapped(text: str, width: int | None) -> str:
    """A paragraph wrapped to at most `width` columns, never within a word."""
    if width is None:
        return text
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def aligned(
    rows: Sequence[tuple[str, ...]], right: Collection[str] = (), gap: str = "  "
) -> list[str]:
    """The lines of a table, whose first row are its titles; columns titled in `right` are flush
    right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(
            text.rjust(width) if title in right else text.ljust(width)
            for text, width, title in zip(row, widths, rows[0], strict=True)
        ).rstrip()
        for row in rows
    ]
