"""Runs benchmarks: `python -m tests.bench [NAME ...]`, all of them without a name; --help lists.

What follows one name from the first option on goes to that benchmark.
"""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tests.bench


def main(wanted: list[str]) -> int:
    """Run them one after the other, since they would disturb each other."""
    names = [
        module.name.removeprefix("bench_")
        for module in pkgutil.iter_modules(tests.bench.__path__)
        if module.name.startswith("bench_")
    ]
    if wanted and wanted[0] in ("-h", "--help"):
        print('make bench ARGS="NAME ..." runs these, all of them without a name:\n')
        for name in names:
            print(f"  {name:<10} {_summary(name)}")
        return 0
    options = next((n for n, word in enumerate(wanted) if word.startswith("-")), len(wanted))
    wanted, arguments = wanted[:options], wanted[options:]
    if arguments and len(wanted) != 1:
        print(f"{' '.join(arguments)} are options of one benchmark: name it before them")
        return 2
    unknown = set(wanted) - set(names)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}")
        return 2
    with _temporary_files():
        for name in wanted or names:
            print(f"\n== {name}", flush=True)
            run = importlib.import_module(f"tests.bench.bench_{name}").main
            run(arguments) if arguments else run()
    return 0


@contextmanager
def _temporary_files() -> Iterator[None]:
    """One directory for what all of them and their programs write, gone after a SIGTERM, too."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="sw-", ignore_cleanup_errors=True) as directory:
        os.environ["TMPDIR"] = tempfile.tempdir = directory
        try:
            yield
        finally:
            tempfile.tempdir = None


def _summary(name: str) -> str:
    """The first line of its docstring; nothing of it is imported, as it may need tools."""
    source = Path(__file__).with_name(f"bench_{name}.py").read_text()
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
