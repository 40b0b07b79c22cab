"""Looks at the ranks of this node for a few seconds, shows what each is doing, and gives a verdict
per job.  Needs no agent; as root, or as the ranks' own user, it sees the most.  With --prometheus,
tells the story of one job over all its nodes instead."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from stagewatch.client._api import DEFAULT_DIRECTORY
from stagewatch.errors import ConfigError
from stagewatch.inspect.evidence import Stacks, gather, text
from stagewatch.inspect.facts import RankFacts, observe
from stagewatch.inspect.verdict import Verdict, judge
from stagewatch.sources.procfs import Procfs
from stagewatch.sources.ranks import RankDirectory
from stagewatch.sources.record_directory import RecordDirectory

LOOKS = 6
PAUSE_SECONDS = 0.5

_COLUMNS = (
    "JOB", "ROLE", "RANK", "PID", "STAGE", "OPEN", "STEP", "PROGRESS", "S", "WCHAN", "CPU", "CLASS",
)  # fmt: skip
_RIGHT = {"RANK", "PID", "OPEN", "STEP", "PROGRESS", "CPU"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch inspect`."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--job", metavar="ID", help="only this job [default: every job]")
    parser.add_argument(
        "--evidence",
        action="store_true",
        help="also show the stacks of a suspect and of one other rank, by py-spy",
    )
    parser.add_argument(
        "--prometheus", metavar="URL", help="ask this server about the whole job; needs --job"
    )
    parser.add_argument(
        "--record-dir",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get("STAGEWATCH_DIR") or DEFAULT_DIRECTORY),
        help=f"directory of the stage records [default: {DEFAULT_DIRECTORY}; STAGEWATCH_DIR]",
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0: nothing found wrong; 3: a job is stalled, or a rank of it is gone."""
    if arguments.prometheus:
        return _tell(arguments.prometheus, arguments.job, arguments.json)
    proc = Procfs()
    directory = RankDirectory(RecordDirectory(arguments.record_dir, proc), proc, fresh_for=0.1)
    if sys.stderr.isatty():
        print(f"watching for {LOOKS * PAUSE_SECONDS:.0f} s ...", end="\r", file=sys.stderr)
    facts = observe(directory, proc, looks=LOOKS, pause=PAUSE_SECONDS)
    if sys.stderr.isatty():
        print("\033[K", end="", file=sys.stderr)
    facts = [fact for fact in facts if arguments.job in (None, fact.job_id)]
    verdicts = judge(facts)
    stacks = gather(facts, verdicts) if arguments.evidence else []
    if arguments.json:
        print(json.dumps(as_json(facts, verdicts, stacks), indent=2))
    elif facts:
        print(table(facts, verdicts, colour=_colour()) + text(stacks))
    else:
        job = f" of job {arguments.job}" if arguments.job else ""
        print(
            f"No rank{job} on this node: no stage record in {arguments.record_dir}, and no process "
            "that may be read has RANK or SLURM_PROCID in its environment."
        )
    for reason, count in sorted(directory.look().skipped.items()):
        print(f"{count} files in {arguments.record_dir} passed over: {reason}", file=sys.stderr)
    return 3 if any(verdict.evidence for verdict in verdicts) else 0


def _tell(url: str, job_id: str | None, as_json: bool) -> int:
    """Print the story of a job as a Prometheus knows it."""
    if not job_id:
        raise ConfigError("--prometheus needs --job ID: whose story is to be told")
    try:
        from stagewatch.inspect.story import Teller
        from stagewatch.sources.prometheus_api import PrometheusApi
    except ImportError as error:
        raise ConfigError(
            f"--prometheus needs {error.name}: pip install 'stagewatch[report]'"
        ) from error
    api = PrometheusApi(url)
    try:
        story = Teller(api, job_id).tell()
    finally:
        api.close()
    print(
        json.dumps(dataclasses.asdict(story), indent=2) if as_json else "\n".join(story.sentences)
    )
    return 3 if story.wrong else 0


def as_json(
    facts: list[RankFacts], verdicts: list[Verdict], stacks: list[Stacks]
) -> dict[str, Any]:
    """Everything found, for programs."""
    return {
        "stacks": [dataclasses.asdict(one) for one in stacks],
        "ranks": [dataclasses.asdict(fact) | {"overdue": fact.overdue} for fact in facts],
        "verdicts": [
            {
                "job_id": verdict.job_id,
                "role": verdict.role,
                "stalled": verdict.stalled,
                "evidence": verdict.evidence,
                "culprits": [
                    {"role": rank.role, "rank": rank.rank, "pid": rank.pid}
                    for rank in verdict.culprits
                ],
                "sentence": verdict.sentence,
            }
            for verdict in verdicts
        ],
    }


def table(facts: list[RankFacts], verdicts: list[Verdict], *, colour: bool) -> str:
    """Ranks as a table, and under it a sentence per role of a job."""
    accused = {rank for verdict in verdicts for rank in _keys(verdict.culprits)}
    rows = [_COLUMNS, *(_row(fact) for fact in facts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            text.rjust(width) if title in _RIGHT else text.ljust(width)
            for text, width, title in zip(row, widths, _COLUMNS, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        if colour and number == 0:
            line = f"\033[1m{line}\033[0m"
        elif colour and number and _key(facts[number - 1]) in accused:
            line = f"\033[31m{line}\033[0m"
        lines.append(line)
    lines.append("")
    for verdict in verdicts:
        bold = colour and verdict.evidence
        lines.append(f"\033[1;31m{verdict.sentence}\033[0m" if bold else verdict.sentence)
    return "\n".join(lines)


def _row(fact: RankFacts) -> tuple[str, ...]:
    stage = fact.stage or "-"
    return (
        fact.job_id,
        fact.role,
        str(fact.rank),
        str(fact.pid),
        f"{stage}/{fact.substage}" if fact.substage else stage,
        _age(fact.stage_open_seconds),
        "-" if fact.step is None else str(fact.step),
        _age(fact.progress_age_seconds) + ("!" if fact.overdue else ""),
        fact.state,
        fact.wait_channel or "-",
        "-" if fact.cpu_ratio is None else f"{fact.cpu_ratio:.0%}",
        fact.wait_class.value,
    )


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f}s"
    return f"{seconds / 60:.1f}m" if seconds < 3600 else f"{seconds / 3600:.1f}h"


def _key(fact: RankFacts) -> tuple[str, str, int]:
    return fact.job_id, fact.role, fact.rank


def _keys(facts: tuple[RankFacts, ...]) -> set[tuple[str, str, int]]:
    return {_key(fact) for fact in facts}


def _colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ
