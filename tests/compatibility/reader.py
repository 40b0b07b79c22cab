"""What a reader of captures is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


class NoAnswerError(Exception):
    """The capture holds an error of the program itself, and nothing else."""


@dataclass(frozen=True, slots=True)
class Value:
    """One figure of a capture: by the product's parsers, and by an independent count."""

    name: str
    read: object
    counted: object

    @property
    def agrees(self) -> bool:
        """Whether both are the same."""
        return self.read == self.counted


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the captures of one command or file."""

    subject: str
    """Whose they are, such as `slurm` or `dcgm`."""
    files: tuple[str, ...]
    """Patterns of file names, as of `fnmatch`; the first reader that fits takes a file."""
    read: Callable[[bytes], Iterable[Value]]
    """The figures of one file's content.  What it raises is told, and counts as a failure."""
