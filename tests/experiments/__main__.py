"""Runs scenarios and writes the table: `python -m tests.experiments [NAME ...] [-- MORE]`.

Without names, all that the demo has; MORE are arguments of the demo.  Each leaves its report in
.cache/experiments/NAME; the table is made of all that are there, so that one can be run again
alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.experiments.run import play
from tests.experiments.sources import SOURCES
from tests.experiments.table import document

COMMAND = "python -m tests.experiments"


def main() -> int:
    """Exit status 1 if a scenario failed; the others are in the table all the same."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], prog=COMMAND)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios [default: all]")
    parser.add_argument("--directory", type=Path, default=Path(".cache/experiments"))
    parser.add_argument("--output", type=Path, default=Path("docs/experiments.md"))
    parser.add_argument("--note", default="", help="a sentence on the machine, for the page")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    arguments = sys.argv[1:]
    more = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    given = parser.parse_args(arguments[: arguments.index("--")] if "--" in arguments else None)
    failed = []
    for name in [] if given.table_only else given.names or scenarios():
        print(f"== {name}", flush=True)
        try:
            recovery = name not in SOURCES
            play(name, given.directory / name, more, recovery=recovery)
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed.append(name)
    given.output.write_text(document(given.directory, COMMAND, given.note))
    print(given.output)
    return 1 if failed else 0


def scenarios() -> list[str]:
    """The names that `stagewatch demo --scenario list` prints."""
    command = [sys.executable, "-m", "stagewatch.cli", "demo", "--scenario", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


if __name__ == "__main__":
    sys.exit(main())
