"""Shows what every rank of this node is doing, and gives a verdict on each job.

The command looks for a few seconds and needs no agent; root, or the user of the ranks, sees the
most.  With --prometheus it reports on one job over all its nodes, the verdict first.

A ! behind PROGRESS marks a rank that has gone without progress for longer than its stage may take.
PROGRESS is the time since its last mark of progress, OPEN the time that its stage has been open, S
its state and WCHAN the kernel function in which it sleeps, shortened (--json has the whole name).

A job is over if all its ranks here ended and made no progress in the last 10 minutes.  It gets one
line, unless you name it as JOB.

exit status:
  0  nothing appears to be wrong, or there is no rank of any job
  1  it could not look: a server does not answer, a directory is unreadable; or no such job
  2  an option cannot be used
  3  something is wrong: a job hangs, has stopped after an exception or waits for a straggler, or a
     rank is gone, that is, its process ended without closing its record; or all processes of a
     command under `stagewatch run` stand still and none keeps a record; with --prometheus also a
     rank that is slower than its peers, and a job that is slower as a whole than it was
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stagewatch.core import config
from stagewatch.core.errors import ConfigError
from stagewatch.core.terminal import bold, colours, columns, red, wrapped
from stagewatch.core.words import denied, printable, whole
from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import Procfs
from stagewatch.incidents.departures import left_lately
from stagewatch.incidents.files import DIRECTORY, read, still_valid, with_evidence
from stagewatch.inspect import evidence, gpu_dump
from stagewatch.inspect.evidence import gather, text, why_none
from stagewatch.inspect.processes import Commands
from stagewatch.inspect.table import table
from stagewatch.judgement import case_file, facts
from stagewatch.judgement.case_file import CaseFile
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.from_node import observe, shown_by
from stagewatch.judgement.judge import Verdict, judge
from stagewatch.judgement.limits import Limits, site_limits
from stagewatch.judgement.memory import Moment
from stagewatch.judgement.paging import marked_early
from stagewatch.judgement.sentence import sentence
from stagewatch.prometheus.options import PrometheusOptions, server_at
from stagewatch.ranks.directory import Census, rank_directory
from stagewatch.ranks.record_directory import GRACE_SECONDS
from stagewatch.ranks.stacks import StackTaker
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import DEFAULT_DIRECTORY

LOOKS = 6
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LookOptions:
    """Where to look at ranks, for `stagewatch inspect` and `stagewatch top`."""

    incident_dir: Path = config.option(
        DIRECTORY,
        "where the agent keeps incidents: stacks of jobs that hang, and which "
        "ranks have left lately",
        parse=config.path,
        env="STAGEWATCH_INCIDENT_DIR",
    )
    prometheus: str = config.option("", "ask the server at this URL about the whole job JOB")
    record_dir: Path = config.option(
        Path(DEFAULT_DIRECTORY),
        "directory of the stage records, to which the ranks write; the default one comes with the "
        "private directories of users that may be read",
        parse=config.existing_directory,
        env="STAGEWATCH_DIR",
    )

    def nothing(self, job: str) -> str:
        """Says that no rank of a job, or of any, was found, and where it was looked for."""
        of_job = f" of job {job}" if job else ""
        elsewhere = " or a private directory" if str(self.record_dir) == DEFAULT_DIRECTORY else ""
        return (
            f"No rank{of_job} on this node: no stage record in {self.record_dir}{elsewhere}, and "
            "no process that may be read has RANK or SLURM_PROCID in its environment."
        )


@dataclass(frozen=True, slots=True)
class InspectOptions(LookOptions):
    """Options of `stagewatch inspect`."""

    json: bool = config.option(False, "print JSON instead of a table")
    job: str = config.option("", "only this job, as the argument JOB; every job if empty")
    at: float = config.option(
        0.0,
        "with --prometheus: judge the job as of this time, as 2026-11-26T14:30:00Z or Unix "
        "seconds; now by default",
        parse=config.moment,
    )
    evidence: bool = config.option(
        False, "also take and show the stacks of all ranks of a job that is wrong, by py-spy"
    )
    gpu_dump: bool = config.option(
        False,
        "have CUDA write a core dump of every GPU of a rank at fault, which stops it for seconds, "
        "and read its kernel with cuda-gdb; only for your own ranks, started with "
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1 and CUDA_COREDUMP_GENERATION_FLAGS=skip_abort",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch inspect`."""
    parser.add_argument("job_id", nargs="?", metavar="JOB", help="only this job")
    tables = {"inspect": InspectOptions, "prometheus": PrometheusOptions}
    config.add_options(parser, tables, without=("prometheus.url",))


def run(arguments: argparse.Namespace) -> int:
    """Look and print; returns the exit status, which `--help` explains."""
    options = config.options_of(arguments, InspectOptions, "inspect")
    options = replace(options, job=arguments.job_id or options.job)
    server = server_at(options.prometheus, arguments)
    limits = site_limits(arguments)
    if options.at and not server:
        raise ConfigError("--at needs --prometheus: a node shows the present alone")
    if options.gpu_dump and server:
        raise ConfigError("--gpu-dump stops GPUs of this node: not with --prometheus")
    return _print_story(server, options, limits) if server else _look(options, limits)


def _look(options: InspectOptions, limits: Limits) -> int:
    """Look at this node, and print; returns the exit status."""
    record_dir = options.record_dir
    proc = Procfs()
    if shown := sys.stderr.isatty():
        print(f"watching for {LOOKS * PAUSE_SECONDS:.0f} s ...", end="\r", file=sys.stderr)
    with (
        rank_directory(record_dir, proc, fresh_for=0.1) as directory,
        closing(GuardedFiles(proc.root)) as files,
    ):
        own = Commands(proc, files)
        ranks = observe(
            directory, proc, looks=LOOKS, pause=PAUSE_SECONDS, files=files, limits=limits
        )
        census = directory.look()
        unrecorded = own.without_record(census.ranks, ranks, options.job)
    if shown:
        print("\033[K", end="", file=sys.stderr)
    ranks = [rank for rank in ranks if options.job in ("", rank.job_id)]
    done = set() if options.job else over(ranks)
    ended = [_ended(job, [rank for rank in ranks if rank.job_id == job]) for job in sorted(done)]
    ranks = [rank for rank in ranks if rank.job_id not in done]
    left = left_lately(options.incident_dir, ranks, proc)
    jobs = [verdict.job_id for verdict in judge([*ranks, *left], limits=limits) if verdict.stalled]
    now = time.time()
    incidents = still_valid(ranks, read(options.incident_dir, jobs), now)
    libraries = [
        printable(f"job {one.job_id}: {line}", 400) for one in incidents for line in one.libraries
    ]
    ranks = with_evidence(ranks, incidents, now)
    verdicts = judge([*ranks, *left], limits=limits)
    if options.evidence:
        with closing(StackTaker()) as taker:
            ranks = gather(census.ranks, ranks, verdicts, taker)
        verdicts = judge([*ranks, *left], limits=limits)
    if options.gpu_dump:
        dumped = gpu_dump.dump(verdicts)
        libraries += map(str, dumped)
        ranks = gpu_dump.with_kernels(ranks, dumped)
        verdicts = judge([*ranks, *left], limits=limits)
    verdicts = marked_early(verdicts, shown_by(census.ranks), limits)
    if options.json:
        cases = _cases([*ranks, *left], now, limits)
        content = as_json(ranks, verdicts) | {
            "libraries": libraries,
            "cases": cases,
            "ended": ended,
            "processes": list(unrecorded.lines),
        }
        print(json.dumps(content, indent=2))
    elif ranks:
        shows = table(ranks, verdicts, colour=colours(sys.stdout), width=columns(sys.stdout))
        if libraries:
            shows += "\n".join(["", *(wrapped(line, columns(sys.stdout)) for line in libraries)])
        if options.evidence:
            shows += "\n" + (text(ranks, verdicts) or f"\n{why_none(verdicts)}")
        print(shows)
    elif not (ended or unrecorded.lines):
        print(options.nothing(options.job))
    if not options.json:
        print("\n".join([*unrecorded.lines, *ended]), end="\n" if unrecorded.lines or ended else "")
    _say_unseen(census, record_dir)
    if options.job and not ranks and not unrecorded.lines:
        return 1
    return 3 if unrecorded.still or any(verdict.wrong for verdict in verdicts) else 0


def _say_unseen(census: Census, record_dir: Path) -> None:
    """Print what may hide a rank."""
    for reason, count in sorted(census.skipped.items()):
        print(f"{count} files in {record_dir} passed over: {reason}", file=sys.stderr)
    for pid in sorted(census.unread or ()):
        print(f"process {pid} passed over: its environment does not answer", file=sys.stderr)
    if census.denied:
        more = "; root sees them" if os.geteuid() else ""
        print(f"{denied(len(census.denied))}{more}", file=sys.stderr)


def over(ranks: Sequence[RankFacts]) -> set[str]:
    """The jobs that are over: all their ranks here ended, and made no progress lately."""
    lasting = {
        rank.job_id
        for rank in ranks
        if rank.wait_class is not WaitClass.GONE or _silence(rank) < GRACE_SECONDS
    }
    return {rank.job_id for rank in ranks} - lasting


def _silence(rank: RankFacts) -> float:
    """Seconds since its last progress, or else since its record began."""
    if rank.progress_age_seconds is not None:
        return rank.progress_age_seconds
    return time.time() - rank.started if rank.started is not None else 0.0


def _ended(job_id: str, ranks: Sequence[RankFacts]) -> str:
    """The line on a job that is over."""
    last = whole(min(map(_silence, ranks)))
    them = f"its {len(ranks)} ranks here" if len(ranks) > 1 else "its rank here"
    return printable(f"job {job_id} is over: {them} ended, the last progress was {last} ago")


def _print_story(server: PrometheusOptions, options: InspectOptions, limits: Limits) -> int:
    """Print the story of a job as a Prometheus knows it; returns the exit status."""
    if not options.job:
        raise ConfigError("--prometheus needs a job: stagewatch inspect JOB --prometheus URL")
    from stagewatch.inspect.story import tell
    from stagewatch.prometheus.api import PrometheusApi

    with closing(PrometheusApi.of(server)) as api:
        story = tell(api, options.job, options.at or time.time(), limits)
    if options.json:
        content = {"job_id": story.job_id, "sentences": story.sentences, "wrong": story.wrong}
        cases = [case_file.as_json(case, states) for case, states in story.cases]
        print(json.dumps(content | {"cases": cases}, indent=2))
    else:
        width = columns(sys.stdout)
        lines = [wrapped(printable(sentence), width) for sentence in story.sentences]
        wrong = story.wrong and colours(sys.stdout)
        lines[0] = bold(red(lines[0], wrong), wrong)
        print("\n".join(lines))
    return 3 if story.wrong else 0


def _cases(ranks: Sequence[RankFacts], now: float, limits: Limits) -> list[dict[str, Any]]:
    """A case of each job, for `stagewatch explain`."""
    jobs: dict[str, list[RankFacts]] = {}
    for rank in ranks:
        jobs.setdefault(rank.job_id, []).append(rank)
    cases = [
        CaseFile("", job_id, (Moment(now, tuple(those)),), limits)
        for job_id, those in sorted(jobs.items())
    ]
    return [case_file.as_json(case, case.states()) for case in cases]


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
                "sentence": sentence(verdict),
            }
            for verdict in verdicts
        ],
    }
