"""False alarms per job-day: days of healthy jobs, looked at by the judge.

Options: --jobs N of each kind, --first N (the number of the first one; a number stands for a life),
--days N of each job, --interval SECONDS between two looks, --kinds NAME,NAME, --workers N, --gpus
(the agents read what GPUs do).  The judge looks at the parts of a job's life in which a rank may be
overdue.  An interrupt prints what has been replayed so far.  `--file FILE` keeps the jobs that are
done, one a line: run again, or with other numbers, it goes on from there, and the tables tell of
all jobs in the file.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import multiprocessing
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.replay_jobs import SHAPES, script
from tests.bench.replay_judge import NAMED, PAGED, SUSPECTED, Episode, Judge
from tests.bench.replay_series import Job
from tests.hangbench.rates import poisson_bounds

WORKERS = 2
Task = tuple[str, int]
"""Kind and number of a job."""


@dataclass
class Lived:
    """A job that was replayed."""

    task: Task
    days: float
    looks: int
    episodes: list[Episode]

    def count(self, what: str) -> int:
        """Episodes of it."""
        return sum(one.what == what for one in self.episodes)


def replay(
    task: Task, days: float, every: int, scratch: str | None = None, *, gpus: bool = False
) -> Lived:
    """One job's days, as the judge sees them."""
    kind, number = task
    name = f"{kind.replace(' ', '-')}-{number}"
    judge = Judge(every)
    alike = not any(part.beat for part in SHAPES[kind].step)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        job = Job(name, Path(folder), days, judge.see, every=every, alike=alike, gpus=gpus)
        job.live(script(SHAPES[kind], job))
    for episode in judge.episodes:
        episode.reason = job.reason(episode.begin)
    return Lived(task, days, job.looks, judge.episodes)


def _read(line: str) -> Lived:
    """One of the file's."""
    (kind, number), days, looks, episodes = json.loads(line).values()
    return Lived((kind, number), days, looks, [Episode(**one) for one in episodes])


def _rate(count: int, days: float) -> str:
    low, high = poisson_bounds(count, days / 100)
    return f"{count} = {count * 100 / days:.2f} ({low:.2f} to {high:.2f})"


def main(arguments: Iterable[str] = ()) -> None:
    """Replay, and print tables in Markdown."""
    parser = argparse.ArgumentParser(prog="replay", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--days", type=float, default=5.0)
    parser.add_argument("--interval", type=int, default=15)
    parser.add_argument("--kinds", default=",".join(SHAPES))
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--gpus", action="store_true")
    parser.add_argument("--file", type=Path)
    given = parser.parse_args(list(arguments))
    numbers = range(given.first, given.first + given.jobs)
    kept = given.file.read_text().splitlines() if given.file and given.file.exists() else []
    lived = [_read(line) for line in kept]
    known = {one.task for one in lived}
    tasks = [(kind, number) for number in numbers for kind in given.kinds.split(",")]
    tasks = [task for task in tasks if task not in known]
    began = time.monotonic()
    with (
        contextlib.suppress(KeyboardInterrupt),
        given.file.open("a") if given.file else contextlib.nullcontext() as file,
        tempfile.TemporaryDirectory(prefix="stagewatch-replay-") as scratch,
        multiprocessing.Pool(given.workers, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool,
    ):
        how = {"days": given.days, "every": given.interval, "gpus": given.gpus}
        one_job = functools.partial(replay, scratch=scratch, **how)
        for done, one in enumerate(pool.imap_unordered(one_job, tasks), 1):
            lived.append(one)
            if file:
                print(json.dumps(one, default=vars), file=file, flush=True)
            kind, number = one.task
            found = f"{one.count(SUSPECTED)} suspicions, {one.count(PAGED)} pages"
            print(f"{done}/{len(tasks)} {kind} {number}: {found}", file=sys.stderr, flush=True)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes by {given.workers} workers.")
    print(report(lived))


def report(lived: Sequence[Lived]) -> str:
    """Tables: of all jobs, by kind of job, and every page."""
    days = sum(one.days for one in lived)
    lines = [f"{days:g} job-days, looked at {sum(one.looks for one in lived)} times.", ""]
    lines += ["| | in 100 job-days |", "| --- | --- |"]
    for what in (SUSPECTED, NAMED, PAGED):
        lines.append(f"| {what} | {_rate(sum(one.count(what) for one in lived), days)} |")
    lines += ["", "| kind of job | job-days | suspicions | names | pages | causes |"]
    lines.append("| --- " * 6 + "|")
    for kind in dict.fromkeys(one.task[0] for one in lived):
        mine = [one for one in lived if one.task[0] == kind]
        counts = [sum(one.count(what) for one in mine) for what in (SUSPECTED, NAMED, PAGED)]
        told = [e.reason for one in mine for e in one.episodes if e.what == SUSPECTED]
        causes = Counter(reason.rsplit(",", 1)[0] for reason in told)
        text = "; ".join(f"{n} × {cause}" for cause, n in causes.most_common(3)) or "–"
        cells = kind, f"{sum(one.days for one in mine):g}", *map(str, counts), text
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| page of job | after | evidence | what the job did |"]
    lines.append("| --- " * 4 + "|")
    for e in (e for one in lived for e in one.episodes if e.what == PAGED):
        lines.append(f"| {e.job} | {e.begin / 3600:.2f} h | {e.evidence} | {e.reason} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
