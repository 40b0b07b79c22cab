"""How often `stagewatch died` names the right class: logs of public issues, and GPUAlert's corpus.

`died` alone plays the logs of tests/died; `died --half FILE` another file of their form.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stagewatch.core.config import tables
from stagewatch.died.command import judged
from stagewatch.died.log import of_lines

HALVES = Path(__file__).parents[1] / "died"


def played(log: dict[str, Any]) -> dict[str, Any]:
    """The record of one log of a file."""
    return judged([of_lines("log", log["text"].splitlines())])


def cases(file: Path) -> list[dict[str, Any]]:
    """The logs of a file, each with its `source`, an issue or a pull request of GitHub."""
    return [{"source": source, **log} for source, log in tables(file, "log").items()]


def _print(name: str, pairs: Iterable[tuple[str, str, str]]) -> None:
    told = list(pairs)
    right = sum(class_ == said for _, class_, said in told)
    print(f"\n{name}: {right} of {len(told)} classes")
    counts = Counter((class_, said) for _, class_, said in told)
    for (class_, said), count in sorted(counts.items()):
        print(f"  {class_:<20} {said:<20} {count}")
    for source, class_, said in told:
        if class_ != said:
            print(f"  wrong: {source}: {class_}, told {said}")


def main(arguments: Sequence[str] = ()) -> None:
    """Play and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", type=Path, action="append")
    options = parser.parse_args(list(arguments))
    for file in options.half or sorted(HALVES.glob("*_half.toml")):
        logs = cases(file)
        records = [(log, played(log)) for log in logs]
        _print(
            file.stem, ((log["source"], log["class"], record["class"]) for log, record in records)
        )
        for log, record in records:
            for key in ("rank", "node", "came_last"):
                if key in log and record.get(key) != log[key]:
                    print(f"  {key}: {log['source']}: {log[key]}, told {record.get(key)}")
