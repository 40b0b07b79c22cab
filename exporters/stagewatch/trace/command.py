"""Writes the last events of a job's ranks as one trace for Perfetto or Chrome.

Every rank keeps its latest 4096 events in its record: stages entered and left, collectives,
exceptions, new steps, changed scalars.  They outlive the rank, even if it was killed.

  stagewatch trace --job 540 -o trace.json
      the ranks of this node, as root or as their user; needs no agent
  stagewatch trace --job 540 -o trace.json.gz --agent https://n1:9947,https://n2:9947
      the ranks that these node agents show
  stagewatch trace --job 540 -o trace.json.gz --prometheus http://prometheus:9090
      the ranks of all agents that show a rank of the job

Every rank is a process of the trace.  It has a track for every thread and for the collectives of
every process group; scalars are counters.  Faults are a separate process.  --prometheus adds a
track with the wait class of every rank, and a process for verdicts.

Open the file at https://ui.perfetto.dev (it stays in the browser) or in chrome://tracing.  Events
of several nodes are aligned as well as the nodes' clocks (clock_offset_seconds).

The certificates and credentials below are for agents. Those for the server of --prometheus come
from the table [prometheus] of --config or the variables STAGEWATCH_PROMETHEUS_*.

exit status:
  0  the trace is written; agents that do not answer are named on standard error
  1  there is no such job, or none of its agents answers
  2  an option cannot be used
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from stagewatch.core.access import Access
from stagewatch.core.config import add_options, duration, http_url, listing, option, options_of
from stagewatch.core.errors import ConfigError, SourceError, StagewatchError
from stagewatch.host.procfs import Procfs
from stagewatch.prometheus.options import PrometheusOptions, server_at
from stagewatch.ranks.directory import rank_directory
from stagewatch.ranks.records import Life
from stagewatch.record import DEFAULT_DIRECTORY
from stagewatch.trace.sources import Node, node_of, this_node
from stagewatch.trace.tracks import Instant, Slice, Trace, rank_name, rank_parts

AT_ONCE = 16
"""Agents asked at the same time."""
WAIT_CLASS_THREAD = 1000
"""Number of the thread that shows a rank's wait class, below all others."""


@dataclass(frozen=True, slots=True)
class TraceOptions(Access):
    """Options of `stagewatch trace`."""

    job: str = option("", "the job; optional if this node has only one")
    agent: tuple[str, ...] = option(
        (), "ask these node agents instead of looking at this node", parse=listing(http_url)
    )
    prometheus: str = option("", "ask all agents of the job that the server at this URL scrapes")
    last: float = option(0.0, "only events of the last so many seconds; all if 0", parse=duration)
    timeout: float = option(10.0, "timeout of an agent's answer", parse=duration)
    record_dir: Path = option(
        Path(DEFAULT_DIRECTORY),
        "directory of this node's stage records; the default one comes with the private "
        "directories of users that may be read",
        env="STAGEWATCH_DIR",
    )
    fault_dir: Path = option(
        Path("/run/stagewatch/faults"),
        "directory of this node's fault markers",
        env="STAGEWATCH_FAULT_DIR",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `stagewatch trace`."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="the trace; compressed if the name ends in .gz",
    )
    tables = {"trace": TraceOptions, "prometheus": PrometheusOptions}
    names = (*PrometheusOptions.__dataclass_fields__,)
    add_options(parser, tables, without=[f"prometheus.{name}" for name in names])


def run(arguments: argparse.Namespace) -> int:
    """Write the trace; returns the exit status, which `--help` explains."""
    options = options_of(arguments, TraceOptions, "trace")
    server = server_at(options.prometheus, arguments)
    events = write(arguments.output, options, server)
    print(f"{arguments.output}: {events} events; open it at https://ui.perfetto.dev")
    return 0


def write(output: Path, options: TraceOptions, server: PrometheusOptions | None) -> int:
    """Write the trace of a job into a file; returns how many events it has.

    Without a `server` they come from `options.agent`, or else from this node.  Raises
    `StagewatchError` if there is nothing to write, or no room for it.
    """
    with ExitStack() as stack:
        trace = Trace(stack.enter_context(_written(output)))
        if server:
            _of_prometheus(trace, server, options)
        elif options.agent:
            _of_agents(trace, options.agent, options)
        else:
            _of_this_node(trace, options)
    return trace.events


@contextmanager
def _written(file: Path) -> Iterator[IO[str]]:
    """The file to write; it replaces an older one only when it is complete."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with gzip.open(draft, "wt", 6) if file.suffix == ".gz" else draft.open("w") as stream:
            yield stream
        draft.replace(file)
    except OSError as error:
        raise StagewatchError(f"cannot write {file}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _of_this_node(trace: Trace, options: TraceOptions) -> None:
    with rank_directory(options.record_dir, Procfs(), fresh_for=0.1) as ranks:
        node = this_node(ranks, options.fault_dir, os.uname().nodename)
        job = options.job or _only(node.jobs())
        _check({job} & node.jobs(), node.jobs(), job, f"on this node, in {options.record_dir}")
    written = _Written(trace, replace(options, job=job))
    written.add(node)
    written.finish([])


def _of_prometheus(trace: Trace, server: PrometheusOptions, options: TraceOptions) -> None:
    if not options.job:
        raise ConfigError("--prometheus needs --job ID")
    from stagewatch.prometheus.api import PrometheusApi
    from stagewatch.trace import history

    with closing(PrometheusApi.of(server)) as api:
        written = _asked(trace, history.agents_of(api, options.job), options)
        end = time.time()
        start = min(end, (trace.earliest or end * 1e6) / 1e6)
        for key, one in history.wait_classes(api, options.job, start, end):
            written.wait_class(key, one)
        written.finish(list(history.verdicts(api, options.job, start, end)))


def _of_agents(trace: Trace, urls: tuple[str, ...], options: TraceOptions) -> None:
    if not options.job:
        raise ConfigError("--agent needs --job ID")
    _asked(trace, list(urls), options).finish([])


def _asked(trace: Trace, urls: list[str], options: TraceOptions) -> _Written:
    """Write the agents' answers, of a few at a time, so that few pages are in memory."""
    written = _Written(trace, options)
    jobs: set[str] = set()
    problems: list[str] = []

    def ask(url: str) -> Node | SourceError:
        try:
            return node_of(url.rstrip("/"), options, options.timeout)
        except SourceError as error:
            return error

    options.context()  # a bad path must fail before any agent is asked
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for at in range(0, len(urls), AT_ONCE):
            for answer in pool.map(ask, urls[at : at + AT_ONCE]):
                if isinstance(answer, Node):
                    jobs |= answer.jobs()
                    written.add(answer)
                else:
                    problems.append(str(answer))
    for problem in problems:
        print(f"stagewatch: {problem}", file=sys.stderr)
    if len(problems) == len(urls):
        raise StagewatchError("no agent answers, so there is no trace")
    _check(written.ranks, jobs, options.job, "with these agents")
    return written


class _Written:
    """The part of a job that has been written so far."""

    def __init__(self, trace: Trace, options: TraceOptions) -> None:
        self._trace = trace
        self._options = options
        self._classes: dict[int, list[Slice]] = {}
        self._faults: dict[tuple[str, str], Slice] = {}
        self._nodes: set[str] = set()
        self.ranks: dict[tuple[str, str], int] = {}
        """Process of the trace by role and number; of a living rank, where one lives."""

    def add(self, node: Node) -> None:
        """Write the ranks of the job on a node."""
        self._nodes.add(node.name)
        if node.left_out:
            print(
                f"stagewatch: {node.name} has {node.left_out} records more than its agent shows",
                file=sys.stderr,
            )
        mine = [one for one in node.recordings if one.record.job_id == self._options.job]
        for one in sorted(mine, key=lambda one: one.record.life is Life.ALIVE):
            parts = rank_parts(one, self._options.last)
            order = 10 + one.record.rank
            process = self._trace.process(rank_name(one, node.name), parts, order)
            self.ranks[one.record.role, str(one.record.rank)] = process
        for fault in node.faults:
            began = int(fault.start * 1e6)
            ended = max(began, int((fault.end or time.time()) * 1e6))
            about = {"target": fault.target_worker, "scenario": fault.scenario, "node": node.name}
            self._faults[node.name, fault.id] = Slice(
                f"{fault.fault_type} on {node.name}", began, ended, fault.id, about
            )

    def wait_class(self, rank: tuple[str, str], one: Slice) -> None:
        """Keep the wait class of a rank for some time."""
        if rank in self.ranks:
            self._classes.setdefault(self.ranks[rank], []).append(one)

    def finish(self, verdicts: list[Slice]) -> None:
        """Write the tracks that belong to no rank, and the end."""
        for process, classes in self._classes.items():
            self._trace.further(process, classes, WAIT_CLASS_THREAD)
        earliest = self._trace.earliest or 0
        faults = [fault for fault in self._faults.values() if fault.end >= earliest]
        named: dict[str, list[Slice]] = {"verdicts": verdicts, "faults": faults}
        for order, (name, slices) in enumerate(named.items(), 1):
            if slices:
                parts: list[Slice | Instant] = list(slices)
                self._trace.process(name, parts, order)
        nodes = sorted(self._nodes)
        self._trace.close({"job_id": self._options.job, "nodes": nodes, "written": time.time()})


def _only(jobs: set[str]) -> str:
    if len(jobs) > 1:
        raise ConfigError(f"which job? --job is one of {', '.join(sorted(jobs)[:20])}")
    return next(iter(jobs), "")


def _check(ranks: object, jobs: set[str], job: str, where: str) -> None:
    """Raise `StagewatchError` if a job has no rank; the message names the jobs that have."""
    if not ranks:
        there = f"there are {', '.join(sorted(jobs)[:20])}" if jobs else "no job has one"
        raise StagewatchError(f"no rank of job {job or '?'} keeps a record {where}: {there}")
