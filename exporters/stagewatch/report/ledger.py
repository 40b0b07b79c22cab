"""The ledger: GPU-seconds by state and owner over a period, as the rules of goodput recorded them.

A sample of the rules counts for the interval between two evaluations; time without a sample is
`not observed`.  The server adds up day by day, so that a month of 1,024 nodes stays within its
limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from stagewatch.core.errors import StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.selectors import matchers, select
from stagewatch.report.history import Labels, milliseconds, usual_gap
from stagewatch.report.periods import Period, iso

JOBS = "job:goodput_gpus:count"
OUTSIDE = "cluster:goodput_gpus:count"
AT_RISK = "job:goodput_at_risk:gpu_seconds"
RULES = "alerts/goodput.rules.yaml"
_EITHER = f'__name__=~"{JOBS}|{OUTSIDE}"'

NOT_OBSERVED = "not observed"
LOST = "lost"

STATES: dict[str, tuple[str, str]] = {
    "rollout": ("productive", "ranks generated samples"),
    "reward": ("productive", "ranks computed rewards"),
    "train": ("productive", "ranks trained"),
    "weights_update": ("productive", "new weights went to the rollout workers"),
    "eval": ("productive", "ranks evaluated"),
    "other": ("productive", "a stage that the trainer named itself"),
    "waiting": ("overhead", "allocated, and no rank was seen yet"),
    "init": ("overhead", "ranks started, or started again"),
    "checkpoint": ("overhead", "ranks wrote or read a checkpoint"),
    "cleanup": ("overhead", "all ranks had ended, or Slurm was completing the job"),
    "idle": ("standing", "no stage was open while the job ran"),
    "stalled": ("standing", "the job made no progress at all"),
    "slowed": ("standing", "the share that a slow rank cost the others"),
    "unused": ("standing", "a job without the client held idle GPUs"),
    LOST: ("lost", "work since the last checkpoint, when a run ended by failure"),
    "busy": ("unknown", "a job without the client kept the GPUs busy"),
    "unobserved": ("unknown", "allocated, but what the GPUs did was not measured"),
    "free": ("free", "no job held them"),
    "reserved": ("free", "kept by a reservation, and no job held them"),
    "drained": ("out", "in a node that was drained or marked FAIL"),
    "down": ("out", "in a node that was down"),
    NOT_OBSERVED: ("unseen", "the rules were not evaluated, so nobody knows"),
}
"""The states, each with its group and its meaning; GPU-seconds become `lost` in `attempts`."""

GROUPS = {
    "productive": "trained (rollout, reward and evaluation included)",
    "overhead": "started, saved and ended jobs",
    "standing": "stood still inside of jobs",
    "lost": "did work that was lost",
    "unknown": "ran jobs whose stages nobody recorded",
    "free": "were free or reserved",
    "out": "were out of service",
    "unseen": "were not observed",
}
"""The groups of states, each with its meaning, in the order of the page."""

DAY = 86400.0
HOURLY_BELOW = 3 * DAY
"""A shorter period is shown by the hour."""

MEASURED = 300.0
"""The seconds over which the interval of evaluations is measured."""

PIECE = 21600.0
"""Evaluations are counted in parts of so many seconds, since a count reads every series."""


class Key(NamedTuple):
    """The owner of GPUs, their state, and the start of a day or an hour.

    Owner and job are empty outside of jobs, and for jobs beyond the agent's limits.
    """

    start: float
    cluster: str
    job_id: str
    user: str
    account: str
    partition: str
    model: str
    state: str
    allocated: bool

    @property
    def group(self) -> str:
        """The group of the state; a state that this version does not know is `unknown`."""
        return STATES.get(self.state, ("unknown", ""))[0]


@dataclass(frozen=True, slots=True)
class Ledger:
    """GPU-seconds of a period by key, in bins of a day or an hour."""

    period: Period
    bins: list[Period]
    rows: dict[Key, float]
    observed: dict[str, dict[float, float]]
    """Seconds in which the rules were evaluated, by cluster and by start of a bin."""
    intervals: dict[str, dict[float, float]]
    """Seconds between two evaluations, by cluster and by start of a bin."""

    @property
    def hourly(self) -> bool:
        """Whether a bin is an hour; else it is a day."""
        return self.period.seconds <= HOURLY_BELOW

    @property
    def step(self) -> float:
        """Seconds of a bin."""
        return 3600.0 if self.hourly else DAY

    def seen(self, cluster: str) -> float:
        """Share of the period in which the rules were evaluated."""
        return sum(self.observed[cluster].values()) / self.period.seconds

    def gpus(self, cluster: str) -> float:
        """The mean number of configured GPUs while they were observed."""
        seconds = sum(self.observed[cluster].values())
        mine = (
            value
            for key, value in self.rows.items()
            if key.cluster == cluster and key.state != NOT_OBSERVED
        )
        return sum(mine) / seconds if seconds else 0.0


def split(period: Period, step: float) -> Iterator[Period]:
    """The days or hours of a period in UTC; the first and the last may be shorter."""
    start = period.start
    while start < period.end:
        end = min((math.floor(start / step) + 1) * step, period.end)
        yield Period(start, end)
        start = end


def window(period: Period) -> str:
    """The range of a selector for a query at the end of a period.  It excludes the start, since
    servers differ in whether a sample there counts."""
    return milliseconds(max(0.001, period.seconds - 0.001))


def read_ledger(api: PrometheusApi, period: Period, cluster: Labels) -> Ledger | None:
    """The ledger of a period; None if the rules were never evaluated in it.

    `cluster` are labels of all series.
    """
    ledger = Ledger(period, [], {}, {}, {})
    ledger.bins.extend(split(period, ledger.step))
    for part in ledger.bins:
        _observe(api, ledger, part, matchers(**cluster))
        _add(api, ledger, part, select(JOBS, **cluster), allocated=True)
        _add(api, ledger, part, select(OUTSIDE, **cluster), allocated=False)
    if not any(ledger.observed.values()):
        return None
    _add_unobserved(ledger)
    return ledger


def missing(period: Period) -> StagewatchError:
    """The error for a server without the ledger, which says what to do."""
    return StagewatchError(
        f"no {JOBS} or {OUTSIDE} from {iso(period.start)} to {iso(period.end)}: load "
        f"{RULES} into Prometheus (`stagewatch assets export` writes it); hours are counted from "
        "then on.  If it is loaded, ask for the period or cluster in which it was"
    )


def _add(
    api: PrometheusApi, ledger: Ledger, part: Period, selector: str, *, allocated: bool
) -> None:
    """Add the GPU-seconds of one day or hour: the sum of the samples, times the interval."""
    by = "cluster, job_id, user, account, partition, model, state"
    query = f"sum by ({by}) (sum_over_time({selector}[{window(part)}]))"
    for series in api.query(query, part.end):
        of = {name: series.labels.get(name, "") for name in by.split(", ")}
        seconds = series.value * ledger.intervals.get(of["cluster"], {}).get(part.start, 0.0)
        if seconds > 0:
            key = Key(start=part.start, allocated=allocated, **of)
            ledger.rows[key] = ledger.rows.get(key, 0.0) + seconds


def _observe(api: PrometheusApi, ledger: Ledger, part: Period, labels: str) -> None:
    """Count the evaluations of one day or hour, by cluster.

    If no series has a sample of every evaluation, the times with a sample of any series count.
    """
    either = ", ".join(filter(None, (_EITHER, labels)))
    most = f"max by (cluster) (count_over_time({{{either}}}[{window(part)}]))"
    for series in api.query(most, part.end):
        cluster = series.labels.get("cluster", "")
        here = f"{{{_EITHER}, {matchers(cluster=cluster)}}}"
        known = ledger.intervals.setdefault(cluster, {})
        before = next(reversed(known.values()), 30.0)
        interval = _interval(api, cluster, part) or before
        known[part.start] = interval
        seconds = series.value * interval
        if seconds < part.seconds - 1.5 * interval:
            seconds = sum(_evaluations(api, here, part, interval)) * interval
        ledger.observed.setdefault(cluster, {})[part.start] = min(seconds, part.seconds)


def _evaluations(api: PrometheusApi, here: str, part: Period, interval: float) -> Iterable[float]:
    look = milliseconds(interval - 0.001)
    for piece in split(part, PIECE):
        times = f"group (last_over_time({here}[{look}]))"
        counted = f"count_over_time(({times})[{window(piece)}:{milliseconds(interval)}])"
        yield from (series.value for series in api.query(counted, piece.end))


def _interval(api: PrometheusApi, cluster: str, part: Period) -> float | None:
    """The usual distance of evaluations in seconds, measured as late in the day or hour as there
    are any."""
    step = part.seconds / 96
    for name in (OUTSIDE, JOBS):
        chosen = select(name, cluster=cluster)
        recent = f"last_over_time({chosen}[{milliseconds(MEASURED)}])"
        tracks = api.query_range(f"group ({recent})", part.start + step, part.end, step)
        for when in (track.samples[-1][0] for track in tracks if track.samples):
            stored = api.samples(chosen, when - MEASURED, when)
            times = sorted({at for track in stored for at, _ in track.samples})
            if len(times) > 2:
                return max(1.0, round(usual_gap(times), 1))
    return None


def _add_unobserved(ledger: Ledger) -> None:
    """Add the GPU-seconds without evaluations, for the GPUs that were configured that day."""
    sums: dict[tuple[str, float], float] = {}
    for key, seconds in ledger.rows.items():
        sums[key.cluster, key.start] = sums.get((key.cluster, key.start), 0.0) + seconds
    for cluster, observed in ledger.observed.items():
        usual = ledger.gpus(cluster)
        for part in ledger.bins:
            seen = observed.get(part.start, 0.0)
            gpus = sums.get((cluster, part.start), 0.0) / seen if seen else usual
            if part.seconds - seen > 1.5 * ledger.intervals[cluster].get(part.start, 0.0):
                key = Key(part.start, cluster, "", "", "", "", "", NOT_OBSERVED, False)
                ledger.rows[key] = (part.seconds - seen) * gpus
