"""False alarms per job-day: days of healthy jobs, looked at by the judge.

Options: --jobs N of each kind, --days N of each job, --intervals 5,15,30, --kinds NAME,NAME.  An
interrupt prints what has been replayed so far.  The judge looks at the parts of a job's life in
which a rank may be overdue.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.replay_jobs import SHAPES, script
from tests.bench.replay_judge import NAMED, SUSPECTED, Episode, Judges
from tests.bench.replay_series import Job
from tests.hangbench.rates import poisson_bounds

WORKERS = 2
Task = tuple[str, int]
"""Kind and number of a job."""


@dataclass
class Replay:
    """What was replayed, of one job or of many."""

    days: Counter[str] = field(default_factory=Counter)
    """Of jobs, by kind."""
    looks: int = 0
    seen: dict[int, list[tuple[str, Episode]]] = field(default_factory=dict)
    """By interval, with the kind of job."""

    def add(self, other: Replay) -> None:
        """Count another one in."""
        self.days += other.days
        self.looks += other.looks
        for every, episodes in other.seen.items():
            self.seen.setdefault(every, []).extend(episodes)

    def count(self, every: int, alert: str) -> int:
        """Episodes of an alert at an interval."""
        return sum(one.what == alert for _, one in self.seen[every])

    def pages(self, every: int) -> list[tuple[str, Episode]]:
        """One for each job and moment, with the job's kind."""
        critical = [one for one in self.seen[every] if one[1].page]
        return list({(e.job, e.begin): (kind, e) for kind, e in critical}.values())


def replay(task: Task, days: float, intervals: Sequence[int]) -> Replay:
    """One job's days, as the judge sees them."""
    kind, number = task
    name = f"{kind.replace(' ', '-')}-{number}"
    judges = Judges(intervals)
    with tempfile.TemporaryDirectory(prefix="stagewatch-replay-") as directory:
        job = Job(name, Path(directory), days, judges.see)
        job.live(script(SHAPES[kind], job))
    found = {one.every: one.episodes for one in judges.watched}
    for episode in (one for some in found.values() for one in some):
        episode.reason = job.reason(episode.begin)
    seen = {every: [(kind, one) for one in some] for every, some in found.items()}
    return Replay(Counter({kind: days}), job.looks, seen)


def _rate(count: int, days: float, unit: float = 1.0) -> str:
    low, high = poisson_bounds(count, days / unit)
    return f"{count} = {count * unit / days:.2f} ({low:.2f} to {high:.2f})"


def main(arguments: Iterable[str] = ()) -> None:
    """Replay, and print tables in Markdown."""
    parser = argparse.ArgumentParser(prog="replay", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--days", type=float, default=5.0)
    parser.add_argument("--intervals", default="5,15,30")
    parser.add_argument("--kinds", default=",".join(SHAPES))
    parser.add_argument("--workers", type=int, default=WORKERS)
    given = parser.parse_args(list(arguments))
    intervals = tuple(int(one) for one in given.intervals.split(","))
    tasks = [(kind, number) for number in range(given.jobs) for kind in given.kinds.split(",")]
    whole = Replay(seen={every: [] for every in intervals})
    one = functools.partial(replay, days=given.days, intervals=intervals)
    began = time.monotonic()
    with ProcessPoolExecutor(given.workers) as pool:
        try:
            for (kind, number), part in zip(tasks, pool.map(one, tasks), strict=True):
                whole.add(part)
                found = {n: (part.count(n, SUSPECTED), len(part.pages(n))) for n in intervals}
                print(f"{kind} {number}: suspicions, pages {found}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes by {given.workers} workers.")
    print(report(whole))


def report(whole: Replay) -> str:
    """Tables: by interval, by alert, by kind of job, and every page."""
    total = sum(whole.days.values())
    every = min(whole.seen)
    lines = [f"{total:g} job-days, looked at {whole.looks} times.", ""]
    alerts = sorted({one.what for some in whole.seen.values() for _, one in some})
    lines.append("| in 100 job-days | " + " | ".join(f"{n} s" for n in whole.seen) + " |")
    lines.append("| --- " * (1 + len(whole.seen)) + "|")
    for alert in alerts:
        counts = (_rate(whole.count(n, alert), total, 100) for n in whole.seen)
        lines.append(f"| {alert} | {' | '.join(counts)} |")
    counts = (_rate(len(whole.pages(n)), total, 100) for n in whole.seen)
    lines.append(f"| pages | {' | '.join(counts)} |")
    lines += [
        "",
        f"| kind of job, at {every} s | job-days | suspicions | names | pages | causes |",
    ]
    lines.append("| --- " * 6 + "|")
    for kind, days in whole.days.items():
        mine = [e for k, e in whole.seen[every] if k == kind]
        counts = [sum(e.what == what for e in mine) for what in (SUSPECTED, NAMED)]
        causes = Counter(e.reason.rsplit(",", 1)[0] for e in mine if e.what != NAMED)
        text = "; ".join(f"{n} × {cause}" for cause, n in causes.most_common(3)) or "–"
        pages = sum(k == kind for k, _ in whole.pages(every))
        lines.append(f"| {kind} | {days:g} | {counts[0]} | {counts[1]} | {pages} | {text} |")
    lines += ["", "| page | interval | job | after | evidence | what the job did |"]
    lines.append("| --- " * 6 + "|")
    for n in whole.seen:
        for _, e in whole.pages(n):
            when = f"{e.begin / 3600:.2f} h"
            lines.append(f"| `{e.what}` | {n} s | {e.job} | {when} | {e.evidence} | {e.reason} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
