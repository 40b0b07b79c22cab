"""Prints what parsers find in captures beside an independent count; status 1 if they differ."""

from __future__ import annotations

import importlib
import pkgutil
import shlex
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import tests.compatibility
from stagewatch.slurm.transport.text import JOBS
from tests.compatibility.reader import NoAnswerError, Reader


def readers() -> Iterator[Reader]:
    """The readers of every module of this folder, in the order of their names."""
    for module in pkgutil.iter_modules(tests.compatibility.__path__):
        if module.name != "__main__":
            found = importlib.import_module(f"tests.compatibility.{module.name}")
            yield from getattr(found, "READERS", ())


def main(arguments: list[str]) -> int:
    """Replay every file below a directory."""
    if arguments == ["--squeue"]:
        print(shlex.join(["squeue", *JOBS]))
        return 0
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m tests.compatibility DIRECTORY", file=sys.stderr)
        return 2
    known = tuple(readers())
    wrong = replayed = 0
    for path in sorted(path for path in Path(arguments[0]).rglob("*") if path.is_file()):
        name = path.relative_to(arguments[0])
        reader = next((r for r in known if any(fnmatch(path.name, f) for f in r.files)), None)
        if reader is None:
            print(f"{name}: no reader takes a file of this name")
            continue
        print(f"{name} ({reader.subject})")
        content = path.read_bytes()
        replayed += 1
        wrong += not _replay(reader, content)
    print(f"{replayed} captures, {wrong} of them wrong")
    return 1 if wrong or not replayed else 0


def _replay(reader: Reader, content: bytes) -> bool:
    """Print the figures of one capture, and tell whether all of them agree."""
    try:
        values = tuple(reader.read(content))
    except NoAnswerError as error:
        print(f"  the program's own error: {error}")
        return True
    except Exception as error:  # whatever it is, it is what the sender has to tell us
        print(f"  NOT READ: {type(error).__name__}: {error}")
        return False
    for value in values:
        verdict = "" if value.agrees else "   DIFFERS"
        print(f"  {value.name:<40} {value.read!s:>20} {value.counted!s:>20}{verdict}")
    return all(value.agrees for value in values)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
