"""False alarms per job-day: days of healthy jobs, replayed through the rules by promtool.

Options: --jobs N of each kind, --days N of each job, --intervals 5,15,30, --kinds NAME,NAME,
--rules NAME,NAME (files of alerts, such as slow; default: stalls), --results FILE (jobs that it
holds count and are not replayed again; others are added).  An interrupt prints what has been
replayed so far.  Of the rules on stalls only those parts of a job's life are replayed in which they
may see something, of others all.

promtool evaluates rule by rule, as Prometheus does; vmalert's replay takes one rule at a time over
the whole range, which is wrong for rules that read their own last value.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.assets import assets
from tests.bench.replay_jobs import SHAPES, script
from tests.bench.replay_series import DAY, Job, busy_buckets, notation
from tests.hangbench.rates import poisson_bounds

RULES = (assets("alerts") / "stalls.rules.yaml",)
WORKERS = 2
PACK = 96
"""Windows of one test: they share what each rule costs of itself."""
PACK_BUCKETS = 5_000
"""Series of one test: a query of promtool may hold 10,000 samples, and one sums all buckets."""
PACK_SECONDS = 5 * DAY
"""Of all windows of one test: promtool holds 32 bytes for each sample."""
SUSPICION = "job:rl_stall:active"
SEEN = f'ALERTS{{alertstate="firing", job_id!=""}} or {SUSPICION}'
Task = tuple[str, int]
"""Kind and number of a job."""


@dataclass(frozen=True)
class Window:
    """A part of a job's life, and what promtool is given of it."""

    job: str
    start: int
    seconds: int
    pauses: list[tuple[float, float, str]]
    input_series: dict[int, list[dict[str, str]]]
    """By interval."""

    @functools.cached_property
    def buckets(self) -> int:
        """Series of histograms' buckets, at any interval: all have the same."""
        series = next(iter(self.input_series.values()))
        return sum("_bucket{" in one["series"] for one in series)

    def reason(self, time: float) -> str:
        """What the job did: the pause that began last, if it was not over long before."""
        begun = [one for one in self.pauses if one[0] <= time]
        return begun[-1][2] if begun and begun[-1][1] > time - 60 else "an ordinary step"


@dataclass(frozen=True)
class Episode:
    """Consecutive evaluations that saw the same alert of one job."""

    job: str
    alert: str
    severity: str
    begin: float
    """Seconds of the job's life."""
    evidence: str
    reason: str


@dataclass
class Replay:
    """What was replayed, of one job or of many."""

    days: Counter[str] = field(default_factory=Counter)
    """Of jobs, by kind."""
    seconds: int = 0
    """In windows."""
    seen: dict[int, list[tuple[str, Episode]]] = field(default_factory=dict)
    """By interval, with the kind of job."""

    def add(self, other: Replay) -> None:
        """Count another one in."""
        self.days += other.days
        self.seconds += other.seconds
        for every, episodes in other.seen.items():
            self.seen.setdefault(every, []).extend(episodes)

    def count(self, every: int, alert: str) -> int:
        """Episodes of an alert at an interval."""
        return sum(one.alert == alert for _, one in self.seen[every])

    def text(self) -> str:
        """As one line, for a file of results."""
        seen = {
            every: [(kind, dataclasses.asdict(episode)) for kind, episode in episodes]
            for every, episodes in self.seen.items()
        }
        return json.dumps({"days": self.days, "seconds": self.seconds, "seen": seen})

    @classmethod
    def parse(cls, text: str) -> Replay:
        """What `text` wrote."""
        read = json.loads(text)
        seen = {
            int(every): [(kind, Episode(**episode)) for kind, episode in episodes]
            for every, episodes in read["seen"].items()
        }
        return cls(Counter(read["days"]), read["seconds"], seen)

    def pages(self, every: int) -> list[tuple[str, Episode]]:
        """One for each job and moment, with the job's kind."""
        critical = [one for one in self.seen[every] if one[1].severity == "critical"]
        return list({(e.job, e.begin): (kind, e) for kind, e in critical}.values())


def replay(
    task: Task, days: float, intervals: tuple[int, ...], rules: tuple[Path, ...] = RULES
) -> Replay:
    """One job's days."""
    made = windows(task, days, intervals, whole=rules != RULES, rules=rules)
    done = Replay(Counter({task[0]: days}), sum(one.seconds for one in made))
    for every in intervals:
        found = [e for pack in packs(made) for e in evaluate(every, pack, rules)]
        done.seen[every] = [(task[0], one) for one in found]
    return done


def resume(results: Path | None, one: Callable[[Task], Replay], task: Task, key: str) -> Replay:
    """A job's days: from the file of results where it has them, else replayed and added to it."""
    key = f"{key} {task[0]} {task[1]}"
    if results is None:
        return one(task)
    for line in results.read_text().splitlines() if results.exists() else ():
        if line.startswith(key + "\t"):
            return Replay.parse(line.partition("\t")[2])
    done = one(task)
    with results.open("a") as file:  # one write, so that lines of several workers do not mix
        file.write(f"{key}\t{done.text()}\n")
    return done


def windows(
    task: Task,
    days: float,
    intervals: tuple[int, ...],
    *,
    whole: bool = False,
    rules: tuple[Path, ...] = RULES,
) -> list[Window]:
    """What must be replayed of a job's life: all of it, or where the rules may see something."""
    kind, number = task
    name = f"{kind.replace(' ', '-')}-{number}"
    used = set(re.findall(r"\brl_\w+", "".join(file.read_text() for file in rules)))
    with tempfile.TemporaryDirectory(prefix="stagewatch-replay-") as directory:
        rehearsal, job = (Job(name, Path(directory), days, intervals, used) for _ in range(2))
        found = rehearsal.rehearse(script(SHAPES[kind], rehearsal), whole)
        job.live(script(SHAPES[kind], job), found)
    made = []
    for n, ((start, stop), series) in enumerate(zip(found, job.series, strict=True)):
        # All windows of a promtool test begin at its second 0, so each is a job of its own.
        text = {
            every: [
                {
                    "series": one.replace(f'"{name}', f'"{name}.{n}'),
                    "values": notation(column, (stop - start) // every),
                }
                for one, column in busy_buckets(columns).items()
            ]
            for every, columns in series.items()
        }
        near = [one for one in job.pauses if one[0] < stop and one[1] > start - 120]
        made.append(Window(f"{name}.{n}", start, stop - start, near, text))
    return made


def packs(all_windows: list[Window]) -> list[list[Window]]:
    """Windows of similar length, to be evaluated side by side."""
    made: list[list[Window]] = [[]]
    for window in sorted(all_windows, key=lambda one: one.seconds):
        pack = made[-1]
        if pack and (
            len(pack) == PACK
            or window.buckets + sum(one.buckets for one in pack) > PACK_BUCKETS
            or window.seconds > 1.3 * pack[0].seconds + 60
            or sum(one.seconds for one in pack) > PACK_SECONDS
        ):
            made.append(pack := [])
        pack.append(window)
    return made


def evaluate(every: int, pack: list[Window], rules: tuple[Path, ...] = RULES) -> list[Episode]:
    """What promtool sees of a pack at an interval."""
    if not pack:
        return []
    test = {
        "rule_files": [str(file) for file in rules],
        "evaluation_interval": f"{every}s",
        "group_eval_order": [
            name
            for file in rules
            for name in re.findall(r"^  - name: ([\w-]+)", file.read_text(), re.M)
        ],
        "tests": [
            {
                "interval": f"{every}s",
                "input_series": [one for window in pack for one in window.input_series[every]],
                # What is not expected is printed.
                "promql_expr_test": [
                    {"expr": SEEN, "eval_time": f"{time}s"}
                    for time in range(0, pack[-1].seconds, every)
                ],
            }
        ],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(test, file)  # JSON is YAML
        file.flush()
        done = subprocess.run(
            ["promtool", "test", "rules", file.name],
            # A fifth of promtool's time goes into tidying up memory otherwise.
            env={"GOGC": "400", **os.environ},
            capture_output=True,
            text=True,
        )
    output = done.stdout + done.stderr
    seen = re.findall(r"time: (\S+),\s+exp: nil\s+got: (.*)", output)
    if (done.returncode != 0) != bool(seen):
        raise SystemExit(output[-2000:])
    by_job = {window.job: window for window in pack}
    last: dict[tuple[str, str], float] = {}
    episodes = []
    for text, got in seen:
        time = _seconds(text)
        for one in re.findall(r"{([^}]*)}", got):
            labels: dict[str, str] = dict(re.findall(r'(\w+)="([^"]*)"', one))
            window = by_job[labels["job_id"].partition("~")[0]]
            alert = labels.get("alertname", SUSPICION)
            key = labels["job_id"], alert
            # The rules also see what the last scrape of a window left behind: that is none of it.
            if time < window.seconds and time - last.get(key, -DAY) > every:
                episodes.append(
                    Episode(
                        window.job.rpartition(".")[0],
                        alert,
                        labels.get("severity", "record"),
                        window.start + time,
                        labels.get("evidence", labels.get("stage", "")),
                        window.reason(window.start + time),
                    )
                )
            last[key] = time
    return episodes


def _seconds(text: str) -> float:
    """A duration as promtool prints it: 1h2m3s."""
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
    return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)(ms|[dhms])", text))


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
    parser.add_argument("--rules", default="stalls", help="files of alerts")
    parser.add_argument("--results", type=Path, help="a file that results are kept in")
    parser.add_argument("--workers", type=int, default=WORKERS)
    given = parser.parse_args(list(arguments))
    intervals = tuple(int(one) for one in given.intervals.split(","))
    tasks = [(kind, number) for number in range(given.jobs) for kind in given.kinds.split(",")]
    whole = Replay(seen={every: [] for every in intervals})
    rules = tuple(assets("alerts") / f"{name}.rules.yaml" for name in given.rules.split(","))
    if lacking := [str(file) for file in rules if not file.exists()]:
        raise SystemExit(f"no rules in {', '.join(lacking)}")
    replayed = functools.partial(replay, days=given.days, intervals=intervals, rules=rules)
    # What is kept counts for the same rules, days and intervals.
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in rules)).hexdigest()[:12]
    key = f"{digest} {given.days:g} {given.intervals}"
    one = functools.partial(resume, given.results, replayed, key=key)
    with ProcessPoolExecutor(given.workers) as pool:
        try:
            for (kind, number), part in zip(tasks, pool.map(one, tasks), strict=True):
                whole.add(part)
                found = {n: (part.count(n, SUSPICION), len(part.pages(n))) for n in intervals}
                print(f"{kind} {number}: suspicions, pages {found}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    print(report(whole))


def report(whole: Replay) -> str:
    """Tables: by interval, by alert, by kind of job, and every page."""
    total = sum(whole.days.values())
    every = min(whole.seen)
    share = whole.seconds / DAY
    lines = [f"{total:g} job-days, of which {share:.1f} days are not silent by construction."]
    lines += ["", "| interval | suspicions a job-day | pages in 100 job-days |", "| --- " * 3 + "|"]
    for n in whole.seen:
        rates = _rate(whole.count(n, SUSPICION), total), _rate(len(whole.pages(n)), total, 100)
        lines.append(f"| {n} s | {rates[0]} | {rates[1]} |")
    lines += [
        "",
        "| alert, in 100 job-days | severity | " + " | ".join(f"{n} s" for n in whole.seen),
    ]
    lines[-1] += " |\n" + "| --- " * (2 + len(whole.seen)) + "|"
    for alert, severity in sorted(
        {(e.alert, e.severity) for s in whole.seen.values() for _, e in s}
    ):
        counts = (_rate(whole.count(n, alert), total, 100) for n in whole.seen)
        lines.append(f"| `{alert}` | {severity} | {' | '.join(counts)} |")
    lines += [
        "",
        f"| kind of job, at {every} s | job-days | suspicions | pages | commonest causes |",
    ]
    lines.append("| --- " * 5 + "|")
    for kind, days in whole.days.items():
        mine = [e for k, e in whole.seen[every] if k == kind and e.alert == SUSPICION]
        causes = Counter(e.reason.rsplit(",", 1)[0] for e in mine).most_common(3)
        text = "; ".join(f"{n} × {cause}" for cause, n in causes) or "–"
        pages = sum(k == kind for k, _ in whole.pages(every))
        lines.append(f"| {kind} | {days:g} | {len(mine)} | {pages} | {text} |")
    lines += ["", "| page | interval | job | after | evidence | what the job did |"]
    lines.append("| --- " * 6 + "|")
    for n in whole.seen:
        for _, e in whole.pages(n):
            when = f"{e.begin / 3600:.2f} h"
            lines.append(f"| `{e.alert}` | {n} s | {e.job} | {when} | {e.evidence} | {e.reason} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
