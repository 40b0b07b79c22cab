"""Shows what every rank of this node is doing, and gives a verdict on each job.

The command looks for a few seconds and needs no agent; root, or the user of the ranks, sees the
most.  With --prometheus it tells the story of one job over all its nodes instead.

A ! behind PROGRESS marks a rank that has gone without progress for longer than its stage may take.
PROGRESS is the time since its last mark of progress, OPEN the time that its stage has been open, S
its state and WCHAN the kernel function in which it sleeps, shortened (--json has the whole name).

exit status:
  0  nothing appears to be wrong, also where there is no rank
  1  no look was possible: a server does not answer or knows no such job, a directory is unreadable
  2  an option cannot be used
  3  something is wrong: a job hangs, has stopped after an exception or waits for a straggler, or a
     rank is gone, that is, its process ended without closing its record
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stagewatch.core.config import add_options, existing_directory, option, options_of, path
from stagewatch.core.errors import ConfigError
from stagewatch.core.words import printable
from stagewatch.host.procfs import Procfs
from stagewatch.prometheus.options import PrometheusOptions
from stagewatch.ranks.directory import rank_directory
from stagewatch.ranks.stacks import StackTaker
from stagewatch.record import DEFAULT_DIRECTORY
from stagewatch.verdict import evidence, facts
from stagewatch.verdict.evidence import gather, text, why_none
from stagewatch.verdict.facts import RankFacts, observe
from stagewatch.verdict.incidents import DIRECTORY, read, with_stacks
from stagewatch.verdict.judge import Verdict, judge
from stagewatch.verdict.table import table

LOOKS = 6
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """Options of `stagewatch inspect`."""

    json: bool = option(False, "print JSON instead of a table")
    job: str = option("", "only this job; every job if empty")
    evidence: bool = option(
        False, "also take and show the stacks of all ranks of a job that is wrong, by py-spy"
    )
    incident_dir: Path = option(
        DIRECTORY,
        "where the agent keeps incidents, whose stacks tell more of a job that hangs",
        parse=path,
        env="STAGEWATCH_INCIDENT_DIR",
    )
    prometheus: str = option("", "ask the server at this URL about the whole job; needs --job")
    record_dir: Path = option(
        Path(DEFAULT_DIRECTORY),
        "directory of the stage records, to which the ranks write; the default one comes with the "
        "private directories of users that may be read",
        parse=existing_directory,
        env="STAGEWATCH_DIR",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch inspect`."""
    tables = {"inspect": InspectOptions, "prometheus": PrometheusOptions}
    add_options(parser, tables, without=("prometheus.url",))


def run(arguments: argparse.Namespace) -> int:
    """Look and print; returns the exit status, which `--help` explains."""
    options = options_of(arguments, InspectOptions, "inspect")
    if options.prometheus:
        server = options_of(arguments, PrometheusOptions, "prometheus")
        return _tell(replace(server, url=options.prometheus), options.job, options.json)
    record_dir = options.record_dir
    proc = Procfs()
    if sys.stderr.isatty():
        print(f"watching for {LOOKS * PAUSE_SECONDS:.0f} s ...", end="\r", file=sys.stderr)
    with rank_directory(record_dir, proc, fresh_for=0.1) as directory:
        ranks = observe(directory, proc, looks=LOOKS, pause=PAUSE_SECONDS)
        census = directory.look()
    if sys.stderr.isatty():
        print("\033[K", end="", file=sys.stderr)
    ranks = [rank for rank in ranks if options.job in ("", rank.job_id)]
    jobs = [verdict.job_id for verdict in judge(ranks) if verdict.stalled]
    ranks = with_stacks(ranks, read(options.incident_dir, jobs), time.time())
    verdicts = judge(ranks)
    if options.evidence:
        taker = StackTaker()
        ranks = gather(census.ranks, ranks, verdicts, taker)
        taker.close()
        verdicts = judge(ranks)
    if options.json:
        print(json.dumps(as_json(ranks, verdicts), indent=2))
    elif ranks:
        print(table(ranks, verdicts, colour=_colour(), width=_width()))
        if options.evidence:
            print(text(ranks, verdicts) or f"\n{why_none(verdicts)}")
    else:
        job = f" of job {options.job}" if options.job else ""
        elsewhere = " or a private directory" if str(record_dir) == DEFAULT_DIRECTORY else ""
        print(
            f"No rank{job} on this node: no stage record in {record_dir}{elsewhere}, and no "
            "process that may be read has RANK or SLURM_PROCID in its environment."
        )
    for reason, count in sorted(census.skipped.items()):
        print(f"{count} files in {record_dir} passed over: {reason}", file=sys.stderr)
    for pid in sorted(census.unread or ()):
        print(f"process {pid} passed over: its environment does not answer", file=sys.stderr)
    return 3 if any(verdict.wrong for verdict in verdicts) else 0


def _tell(server: PrometheusOptions, job_id: str, as_json: bool) -> int:
    """Print the story of a job as a Prometheus knows it; returns the exit status."""
    if not job_id:
        raise ConfigError("--prometheus needs --job ID, the job whose story it tells")
    try:
        from stagewatch.prometheus.api import PrometheusApi
        from stagewatch.verdict.story import tell
    except ImportError as error:
        raise ConfigError(
            f"--prometheus needs {error.name}: pip install 'stagewatch[report]'"
        ) from error
    api = PrometheusApi.of(server)
    try:
        story = tell(api, job_id)
    finally:
        api.close()
    if as_json:
        print(json.dumps(dataclasses.asdict(story), indent=2))
    else:
        print("\n".join(map(printable, story.sentences)))
    return 3 if story.wrong else 0


def as_json(ranks: list[RankFacts], verdicts: list[Verdict]) -> dict[str, Any]:
    """The facts, verdicts and stacks, for programs."""
    return {
        "stacks": evidence.as_json(ranks, verdicts),
        "ranks": [facts.as_json(rank) for rank in ranks],
        "verdicts": [
            {
                "job_id": verdict.job_id,
                "role": verdict.role,
                "stalled": verdict.stalled,
                "evidence": verdict.evidence,
                "culprits": [
                    {
                        "role": charge.rank.role,
                        "rank": charge.rank.rank,
                        "pid": charge.rank.pid,
                        "evidence": charge.evidence,
                        "group": charge.group,
                        "op": charge.op,
                    }
                    for charge in verdict.charges
                ],
                "sentence": verdict.sentence,
            }
            for verdict in verdicts
        ],
    }


def _width() -> int | None:
    """The columns of the terminal; `None` where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ
