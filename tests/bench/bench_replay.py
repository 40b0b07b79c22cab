"""False alarms per job-day: days of healthy jobs, replayed through the rules on stalls by promtool.

Options: --days N (of each kind of job), --intervals 5,15,30, --kinds NAME,NAME, and --whole, which
replays whole days through the rules on stages and throughput, too.

promtool evaluates rule by rule, as Prometheus does; vmalert's replay takes one rule at a time over
the whole range, which is wrong for rules that read their own last value.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from stagewatch.assets import assets
from tests.bench.replay_jobs import SHAPES, script
from tests.bench.replay_series import DAY, Job, notation

STALLS = ("stalls",)
WHOLE = ("stalls", "stages", "training", "recovery")
WORKERS = 2
BATCH = 10
"""Job-days whose series are held at a time."""
PACK = 24
"""Windows of one test: a query of promtool may load 10,000 samples, and each has 60 buckets."""
PACK_SECONDS = 5 * DAY
"""Of all windows of one test: promtool holds 32 bytes for each sample."""
SEEN = 'ALERTS{alertstate="firing"} or job:rl_stall:active'
SUSPICION = "job:rl_stall:active"
PAGES_A_DAY, SUSPICIONS_A_DAY = 0.01, 1.0


@dataclass(frozen=True)
class Window:
    """A part of a job's day, and what promtool is given of it."""

    kind: str
    job: str
    start: int
    seconds: int
    pauses: list[tuple[float, float, str]]
    input_series: dict[int, list[dict[str, str]]]
    """By interval."""

    def reason(self, time: float) -> str:
        """What the job did: the pause that began last, if it was not over long before."""
        begun = [one for one in self.pauses if one[0] <= time]
        return begun[-1][2] if begun and begun[-1][1] > time - 60 else "an ordinary step"


@dataclass(frozen=True)
class Episode:
    """Consecutive evaluations that saw the same alert of one job."""

    kind: str
    job: str
    alert: str
    severity: str
    begin: float
    """Seconds of the job's day."""
    evidence: str
    reason: str


def windows(task: tuple[str, int], intervals: tuple[int, ...], whole: bool) -> list[Window]:
    """What must be replayed of one day of one job."""
    kind, number = task
    name = f"{kind.replace(' ', '-')}-{number}"
    used = set(re.findall(r"\brl_\w+", "".join(Path(file).read_text() for file in _files(whole))))
    with tempfile.TemporaryDirectory(prefix="stagewatch-replay-") as directory:
        rehearsal, job = (Job(name, Path(directory), intervals, used) for _ in range(2))
        found = rehearsal.rehearse(script(SHAPES[kind], rehearsal), whole)
        job.live(script(SHAPES[kind], job), found)
    made = []
    for n, ((start, stop), series) in enumerate(zip(found, job.series, strict=True)):
        # All windows of a promtool test begin at its second 0, so each is a job of its own.
        own = f"{name}.{n}"
        text = {
            every: [
                {
                    "series": one.replace(f'"{name}"', f'"{own}"'),
                    "values": notation(column, (stop - start) // every),
                }
                for one, column in columns.items()
            ]
            for every, columns in series.items()
        }
        near = [one for one in job.pauses if one[0] < stop and one[1] > start - 120]
        made.append(Window(kind, own, start, stop - start, near, text))
    return made


def _files(whole: bool) -> list[str]:
    return [str(assets("alerts") / f"{name}.rules.yaml") for name in (WHOLE if whole else STALLS)]


def packs(all_windows: list[Window]) -> list[list[Window]]:
    """Windows of similar length, to be evaluated side by side."""
    made: list[list[Window]] = [[]]
    for window in sorted(all_windows, key=lambda one: one.seconds):
        pack = made[-1]
        if pack and (
            len(pack) == PACK
            or window.seconds > 1.3 * pack[0].seconds + 60
            or sum(one.seconds for one in pack) > PACK_SECONDS
        ):
            made.append(pack := [])
        pack.append(window)
    return made


def evaluate(work: tuple[int, list[Window]], whole: bool) -> tuple[int, list[Episode]]:
    """An interval, and what promtool sees of a pack at it."""
    every, pack = work
    files = _files(whole)
    groups = [
        one
        for file in files
        for one in re.findall(r"^  - name: (\w+)", Path(file).read_text(), re.M)
    ]
    test = {
        "rule_files": files,
        "evaluation_interval": f"{every}s",
        "group_eval_order": groups,
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
            ["promtool", "test", "rules", file.name], capture_output=True, text=True
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
            window = by_job[labels["job_id"]]
            alert = labels.get("alertname", SUSPICION)
            key = window.job, alert
            # The rules also see what the last scrape of a window left behind: that is none of it.
            if time < window.seconds and time - last.get(key, -DAY) > every:
                episodes.append(
                    Episode(
                        window.kind,
                        window.job.rpartition(".")[0],
                        alert,
                        labels.get("severity", "record"),
                        window.start + time,
                        labels.get("evidence", labels.get("stage", "")),
                        window.reason(window.start + time),
                    )
                )
            last[key] = time
    return every, episodes


def _seconds(text: str) -> float:
    """A duration as promtool prints it: 1h2m3s."""
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
    return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)(ms|[dhms])", text))


def bounds(count: int, days: float) -> tuple[float, float]:
    """The exact two-sided 95 % interval of a Poisson rate (Garwood), found by bisection."""

    def below(count: int, mean: float) -> float:
        return math.fsum(
            math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)
        )

    def solve(count: int, share: float) -> float:
        low, high = 1e-9, 2.0 * count + 20
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if below(count, middle) > share else (low, middle)
        return low

    return (solve(count - 1, 0.975) if count else 0.0) / days, solve(count, 0.025) / days


def _rate(count: int, days: int) -> str:
    low, high = bounds(count, days)
    return f"{count} = {count / days:.3f} ({low:.3f} to {high:.3f})"


def main(arguments: Iterable[str] = ()) -> None:
    """Replay, and print tables in Markdown."""
    parser = argparse.ArgumentParser(prog="replay", description=__doc__)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--intervals", default="5,15,30")
    parser.add_argument("--kinds", default=",".join(SHAPES))
    parser.add_argument("--whole", action="store_true")
    given = parser.parse_args(list(arguments))
    intervals = tuple(int(one) for one in given.intervals.split(","))
    tasks = [(kind, number) for number in range(given.days) for kind in given.kinds.split(",")]
    days = Counter(kind for kind, _ in tasks)
    found: dict[int, list[Episode]] = {every: [] for every in intervals}
    replayed = 0.0
    with ProcessPoolExecutor(WORKERS) as pool:
        for first in range(0, len(tasks), BATCH):
            make = functools.partial(windows, intervals=intervals, whole=given.whole)
            made = [one for some in pool.map(make, tasks[first : first + BATCH]) for one in some]
            replayed += sum(one.seconds for one in made) / DAY
            work = [(every, pack) for every in intervals for pack in packs(made)]
            for every, some in pool.map(functools.partial(evaluate, whole=given.whole), work):
                found[every] += some
            pages = Counter(e.alert for e in found[intervals[0]])
            print(f"{first + BATCH} of {len(tasks)}: {dict(pages)}", file=sys.stderr, flush=True)
    _print(found, intervals, days, replayed)


def _print(
    found: dict[int, list[Episode]], intervals: tuple[int, ...], days: Counter[str], replayed: float
) -> None:
    total = days.total()
    print(f"{total} job-days, of which {replayed:.1f} days are not silent by construction.\n")
    print("| interval | suspicions a job-day | jobs' pages a job-day |\n| --- | --- | --- |")
    for every in intervals:
        suspicions = sum(e.alert == SUSPICION for e in found[every])
        pages = len({(e.job, e.begin) for e in found[every] if e.severity == "critical"})
        print(f"| {every} s | {_rate(suspicions, total)} | {_rate(pages, total)} |")
    print("\n| alert | severity | " + " | ".join(f"{every} s" for every in intervals) + " |")
    print("| --- | --- |" + " --- |" * len(intervals))
    for alert, severity in sorted({(e.alert, e.severity) for all_ in found.values() for e in all_}):
        counts = [sum(e.alert == alert for e in found[every]) for every in intervals]
        print(f"| `{alert}` | {severity} | " + " | ".join(_rate(n, total) for n in counts) + " |")
    every = intervals[0]
    print(f"\n| kind of job, at {every} s | job-days | suspicions | pages | the commonest causes |")
    print("| --- | --- | --- | --- | --- |")
    rows = []
    for kind, number in days.items():
        mine = [e for e in found[every] if e.kind == kind]
        suspected = [e for e in mine if e.alert == SUSPICION]
        paged = {(e.job, e.begin) for e in mine if e.severity == "critical"}
        causes = Counter(e.reason.rsplit(",", 1)[0] for e in suspected).most_common(3)
        text = "; ".join(f"{n} × {cause}" for cause, n in causes) or "–"
        rows.append(
            (
                len(paged),
                len(suspected),
                f"| {kind} | {number} | {len(suspected)} | {len(paged)} | {text} |",
            )
        )
    for *_, line in sorted(rows, reverse=True):
        print(line)
    for every in intervals:
        print(f"\n| page at {every} s | job | after | evidence | what the job did |")
        print("| --- | --- | --- | --- | --- |")
        for e in found[every]:
            if e.severity == "critical":
                when = f"{e.begin / 3600:.2f} h"
                print(f"| `{e.alert}` | {e.job} | {when} | {e.evidence} | {e.reason} |")


if __name__ == "__main__":
    main(sys.argv[1:])
