"""Paths with names in them: `/scratch/{job_id}/rank_{rank}.log`, and `*` for any name.

For workers of the helper process: standard library only. The search starts at the first wildcard;
it does not follow symbolic links below it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from stagewatch.core import words

MAX_NAME = 64
"""Longest name taken from a path; users choose these names."""

Entries = Callable[[Path], Iterable["os.DirEntry[str]"]]


def is_wild(part: str) -> bool:
    """Whether a path component is a pattern."""
    return "*" in part or "{" in part


def matching(
    pattern: str, placeholders: Mapping[str, str], entries: Entries, *, files: bool
) -> Iterator[tuple[dict[str, str], Path]]:
    """The directories, or the regular files, that match a pattern, with the names in them.

    `placeholders` maps placeholders to regular expressions; `entries` lists a directory. The last
    component with a `*` has the name `*`.
    """
    parts = Path(pattern).parts
    yield from _down({}, Path(parts[0]), parts[1:], placeholders, entries, files)


def _down(
    names: dict[str, str],
    path: Path,
    parts: tuple[str, ...],
    placeholders: Mapping[str, str],
    entries: Entries,
    files: bool,
) -> Iterator[tuple[dict[str, str], Path]]:
    if not parts:
        yield names, path
        return
    part, rest = parts[0], parts[1:]
    if not is_wild(part):
        yield from _down(names, path / part, rest, placeholders, entries, files)
        return
    regex = _regex(part, placeholders)
    for entry in entries(path):
        found = regex.fullmatch(entry.name)
        if found is None:
            continue
        if entry.is_dir(follow_symlinks=False) if rest or not files else _is_file(entry):
            more = {name: printable(value) for name, value in found.groupdict().items()}
            if "*" in part:
                more["*"] = printable(entry.name)
            yield from _down(names | more, path / entry.name, rest, placeholders, entries, files)


def _is_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)


def _regex(part: str, placeholders: Mapping[str, str]) -> re.Pattern[str]:
    regex = re.escape(part).replace(r"\*", ".*")
    for name, value in placeholders.items():
        regex = regex.replace(rf"\{{{name}\}}", f"(?P<{name}>{value})", 1)
    return re.compile(regex, re.DOTALL)


def printable(name: str) -> str:
    """A name fit for a label."""
    return words.printable(name, MAX_NAME)
