"""Writes dashboards/generated/NAME.json from dashboards/NAME.dashboard.py:

    python -m stagewatch.dashboards.generate [--check] [DIRECTORY]

A board too long for one file imports its sections from dashboards/sections.  With
--check nothing is written, and the exit status is 1 if a file is out of date.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from grafanalib._gen import DashboardEncoder

SUFFIX = ".dashboard.py"
SECTIONS = "sections"


def render(source: Path) -> str:
    """The JSON of the variable `dashboard` in a Python file."""
    with _importable_sections(source.parent):
        dashboard = runpy.run_path(str(source))["dashboard"]
    return json.dumps(dashboard, cls=DashboardEncoder, indent=2, sort_keys=True) + "\n"


def generate(directory: Path) -> dict[Path, str]:
    """The text that each generated file should have."""
    sources = sorted(directory.glob(f"*{SUFFIX}"))
    return {
        directory / "generated" / f"{source.name.removesuffix(SUFFIX)}.json": render(source)
        for source in sources
    }


def stale(directory: Path) -> list[Path]:
    """Generated files that are missing, differ, or have no source any more."""
    wanted = generate(directory)
    changed = [
        path for path, text in wanted.items() if not path.exists() or path.read_text() != text
    ]
    return changed + sorted(set((directory / "generated").glob("*.json")) - set(wanted))


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare the files; returns 1 if one is out of date or there is nothing to write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument("directory", nargs="?", type=Path, default=Path("dashboards"))
    arguments = parser.parse_args(argv)
    if not any(arguments.directory.glob(f"*{SUFFIX}")):
        print(f"no {SUFFIX} file in {arguments.directory}", file=sys.stderr)
        return 1
    if arguments.check:
        old = stale(arguments.directory)
        for path in old:
            print(f"{path} is out of date: run python -m stagewatch.dashboards.generate")
        return 1 if old else 0
    wanted = generate(arguments.directory)
    for path in set((arguments.directory / "generated").glob("*.json")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


@contextlib.contextmanager
def _importable_sections(directory: Path) -> Iterator[None]:
    """Import `sections` from this directory, and forget it after: another one has its own."""
    place = str(directory.resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)
        for name in [name for name in sys.modules if name.partition(".")[0] == SECTIONS]:
            del sys.modules[name]


if __name__ == "__main__":
    sys.exit(main())
