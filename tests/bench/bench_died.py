"""How often `stagewatch died` names the right class: logs of public issues, and GPUAlert's corpus.

`died` alone plays the logs of tests/died; `died --part FILE` another file of their form.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from stagewatch.core.config import tables
from stagewatch.died.command import judged
from stagewatch.died.log import of_lines, read

MEANT = {
    "cuda_oom": ("gpu_memory",),
    "ram_oom": ("host_memory",),
    "oom_killer": ("host_memory",),
    "nccl": ("collective_timeout", "network"),
    "cuda_runtime": ("gpu", "code"),
    "file_not_found": ("user",),
    "permission": ("user",),
    **dict.fromkeys(("segfault", "runtime_error", "div_zero", "device_mismatch"), ("code",)),
    **dict.fromkeys(("assertion", "missing_module", "traceback", "nan_loss"), ("code",)),
}
"""Our classes for each of GPUAlert's, set before any of its logs was read."""
PARTS = Path(__file__).parents[1] / "died"


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


def corpus(directory: Path) -> Iterator[tuple[str, str, str]]:
    """Name, class and what was told of each log of GPUAlert's corpus."""
    for file in sorted(directory.glob("corpus/*/*.log")):
        class_ = file.name.split("-")[0]
        told = str(judged([read(file)])["class"])
        yield f"{file.parent.name}/{file.name}", class_, class_ if told in MEANT[class_] else told


def main(arguments: Sequence[str] = ()) -> None:
    """Play and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=Path, action="append")
    parser.add_argument(
        "--gpualert", type=Path, help="a clone of https://github.com/Parv-01/gpualert-eval"
    )
    options = parser.parse_args(list(arguments))
    if options.gpualert:
        _print("GPUAlert", corpus(options.gpualert))
        return
    for file in options.part or sorted(PARTS.glob("*_part.toml")):
        logs = cases(file)
        records = [(log, played(log)) for log in logs]
        _print(
            file.stem, ((log["source"], log["class"], record["class"]) for log, record in records)
        )
        for log, record in records:
            for key in ("rank", "node", "came_last"):
                if key in log and record.get(key) != log[key]:
                    print(f"  {key}: {log['source']}: {log[key]}, told {record.get(key)}")
