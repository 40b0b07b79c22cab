"""The ledger of a scripted day of 40 jobs, held against accounting and the ranks' own logs.

A real Slurm of 20 pretended GPUs, a real Prometheus with the shipped rules, node agents and Slurm's
agent.  The count beside the ledger reads sacct, sacctmgr and logs that the ranks write themselves.

A row may differ by one evaluation interval for each GPU that enters or leaves its state.  Exits
with 1 where one differs by more; where the GPUs of an evaluation are not those configured, but for
one that the end of Prometheus cuts short; or where anything is counted while Slurm's agent or
Prometheus is gone.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.attempts import find_attempts
from stagewatch.report.ledger import JOBS, NOT_OBSERVED, OUTSIDE, read_ledger
from stagewatch.report.periods import Period
from stagewatch_lab.slurm.lab import SlurmLab
from tests.bench.day_count import Count, Piece, Row, lost, outside, read_absences, read_runs
from tests.bench.goodput_day import GPUS, INTERVAL, NODES, SPEC, Day

CONFIGURED = GPUS * len(NODES)
STALE = 4 * INTERVAL
"""Seconds for which an answer of Slurm counts."""
ROUNDING = 0.01
"""GPUs, and GPU-seconds."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One row of the table, in GPU-seconds."""

    row: Row
    ledger: float
    counted: float
    bound: float

    @property
    def over(self) -> bool:
        """Whether it differs by more than it may."""
        return abs(self.ledger - self.counted) > self.bound + ROUNDING


def main() -> None:
    """Play the day, print the table; raises `SystemExit` if the ledger is wrong."""
    with SlurmLab(Path.home() / ".cache/stagewatch", SPEC, interval=INTERVAL) as lab:
        day = Day(lab)
        day.play()
        sums = evaluations(lab.api, day)
        rows = compare(lab.api, day, sorted(sums))
    print(f"\n{'job':<8} {'state':<12} {'ledger':>9} {'counted':>9} {'differ':>8} {'bound':>8}")
    for each in rows:
        job, state = each.row
        print(
            f"{job or 'outside':<8} {state:<12} {each.ledger:9.1f} {each.counted:9.1f} "
            f"{each.ledger - each.counted:+8.1f} {each.bound:8.1f}{'  OVER' if each.over else ''}"
        )
    over = sum(each.over for each in rows)
    last = max(when for when in sums if when <= day.gaps[-1][1])
    wrong = {when: gpus for when, gpus in sums.items() if abs(gpus - CONFIGURED) > ROUNDING}
    cut = wrong.pop(last, None)
    print(f"\n{len(day.jobs)} jobs, {len(rows)} rows, {over} over their bound")
    print(f"{len(sums)} evaluations, {len(wrong)} of them not of {CONFIGURED} GPUs {wrong or ''}")
    if cut is not None:
        print(f"the last before Prometheus ended was cut short, and has {cut:g} GPUs")
    made_up = [when for when in sums for gap in day.gaps if gap[0] + STALE < when <= gap[1]]
    print(f"{len(day.gaps)} gaps, in which {len(made_up)} evaluations counted anything")
    if over or wrong or made_up:
        raise SystemExit(1)


def evaluations(api: PrometheusApi, day: Day) -> dict[float, float]:
    """GPUs in all states at each evaluation of the day."""
    sums: defaultdict[float, float] = defaultdict(float)
    for name in (JOBS, OUTSIDE):
        for track in api.samples(name, day.began, day.ended):
            for when, value in track.samples:
                sums[when] += value
    return dict(sums)


def compare(api: PrometheusApi, day: Day, times: list[float]) -> list[Compared]:
    """The ledger beside the count, over the time that evaluations stand for."""
    period = Period(times[0], times[-1])
    observed = [(when - INTERVAL, when) for when in times[1:]]
    ledger = read_ledger(api, period, {}, {})
    assert ledger is not None
    seen: defaultdict[Row, float] = defaultdict(float)
    for key, seconds in ledger.rows.items():
        seen[key.job_id, key.state] += seconds
    for attempt in find_attempts(api, ledger, {}):
        seen[attempt.job_id, "lost"] += attempt.lost or 0.0
    counted, bounds = count(day, period, observed)
    gaps = [later - when for when, later in pairwise(times) if later - when > 1.5 * INTERVAL]
    counted["", NOT_OBSERVED] = CONFIGURED * sum(gap - INTERVAL for gap in gaps)
    bounds["", NOT_OBSERVED] = CONFIGURED * 2.0 * len(gaps)
    return [
        Compared(row, seen.get(row, 0.0), counted.get(row, 0.0), INTERVAL * bounds.get(row, 0.0))
        for row in sorted(seen.keys() | counted.keys(), key=lambda row: (row[0].zfill(6), row[1]))
    ]


def count(
    day: Day, period: Period, observed: list[tuple[float, float]]
) -> tuple[dict[Row, float], dict[Row, float]]:
    """GPU-seconds and transitions by row, from what stagewatch has no hand in."""
    runs = read_runs(day.lab.slurm, day.logs)
    absences = read_absences(day.lab.slurm)
    for node, start, end, kind in day.absences:
        absences.setdefault(node, []).append((start, end, kind))
    whole = (period.start, period.end)
    pieces: list[Piece] = list(outside(runs, dict.fromkeys(NODES, GPUS), absences, whole))
    for run in runs:
        mine = list(run.pieces(day.silent))
        pieces += [*mine, *lost(run, mine)]
    found = Count([piece for piece in pieces if piece.gpus > 0])
    return found.seconds(observed), found.transitions()


if __name__ == "__main__":
    sys.exit(main())
