"""Runs of jobs that ended by failure, and what each cost: lost work, time in the queue, the start.

A run ended by failure if Slurm put its job back into the queue (also by preemption, since the work
is lost all the same); or if the job disappeared and, in its last five minutes, there was a page for
evidence of `DEAD` or an alert of `FAILURES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from stagewatch.prometheus.api import PrometheusApi, Series
from stagewatch.prometheus.selectors import select
from stagewatch.report.history import Labels, milliseconds
from stagewatch.report.ledger import AT_RISK, JOBS, LOST, OUTSIDE, Ledger, window
from stagewatch.report.periods import Period

STALLS = ("JobStalled", "StalledHeartbeat")
DEAD = ("process_gone", "missing", "node_lost")
"""If a job ends while an alert of `STALLS` fires with this evidence, it has failed."""

FAILURES = ("JobLostNode", "FailedButNotEnded", "FirstFailure")
"""If a job ends while one of these alerts fires for it, it has failed."""

NEAR = 300.0
"""An alert counts within so many seconds before the end; nearer requeues count once."""

LAST_STEP = 30.0
"""Seconds between two looks for the last sample of a job."""

LOOK_BACK = 900.0
"""The last value before the end is at most this old: ranks die before Slurm notices."""

REQUEUED = "put back into the queue"
"""How a run ended that Slurm means to start again; other runs have the name of the alert."""

Job = tuple[str, str]
"""Cluster and job id."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run that ended by failure at `ended` (Unix seconds).

    `lost` is the work since its last checkpoint in GPU-seconds, None if unknown; `queued` the time
    in seconds until the job ran again; `startup` the GPU-seconds that the next run spent waiting
    for its ranks and in init.  Both are None if it was not seen to run again.
    """

    cluster: str
    job_id: str
    ended: float
    how: str
    lost: float | None = None
    gpus: float | None = None
    queued: float | None = None
    startup: float | None = None

    @property
    def requeued(self) -> bool:
        """Whether Slurm put the job back into the queue."""
        return self.how == REQUEUED

    @property
    def cost(self) -> float:
        """GPU-seconds that were paid for and did nothing that lasts."""
        return (self.lost or 0.0) + (self.startup or 0.0)

    @property
    def off(self) -> float:
        """GPU-seconds that the job waited in the queue; they were not paid for."""
        return (self.gpus or 0.0) * (self.queued or 0.0)


def find_attempts(api: PrometheusApi, ledger: Ledger, cluster: Labels) -> list[Attempt]:
    """The runs of the ledger's jobs that ended by failure, in the order of their ends."""
    jobs = {(key.cluster, key.job_id) for key in ledger.rows if key.job_id}
    requeues: dict[Job, set[float]] = {}
    starts: dict[Job, set[float]] = {}
    last: dict[Job, float] = {}
    newest: dict[str, float] = {}
    fired: dict[Job, dict[str, float]] = {}
    for part in ledger.bins:
        for job, when in _values(api, part, "slurm_job_requeue_timestamp_seconds", cluster):
            requeues.setdefault(job, set()).add(when)
        if back := sorted({job_id for _, job_id in requeues}):
            name = "slurm_job_start_timestamp_seconds"
            for job, when in _values(api, part, name, {**cluster, "job_id": back}):
                starts.setdefault(job, set()).add(when)
        for series in _last(api, part, select(AT_RISK, **cluster)):
            last[_job(series)] = series.value
        for series in _last(api, part, select(OUTSIDE, **cluster)):
            newest[series.labels.get("cluster", "")] = series.value
        firing = {**cluster, "alertstate": "firing"}
        dead = {"alertname": STALLS, "severity": "critical", "evidence": DEAD}
        for labels in ({"alertname": FAILURES}, dead):
            for series in _last(api, part, select("ALERTS", **firing, **labels)):
                fired.setdefault(_job(series), {})[series.labels.get("alertname", "")] = (
                    series.value
                )
    ended = [
        Attempt(*job, when, REQUEUED)
        for job in jobs & requeues.keys()
        for when in _apart(requeues[job])
        if ledger.period.start < when <= ledger.period.end
    ]
    for job, when in last.items():
        names = [name for name, at in fired.get(job, {}).items() if at >= when - NEAR]
        again = any(at >= when - NEAR for at in requeues.get(job, ()))
        gone = when < newest.get(job[0], when) - LAST_STEP
        if job in jobs and names and gone and not again:
            ended.append(Attempt(*job, when, min(names, key=(*STALLS, *FAILURES).index)))
    return [
        _costed(api, ledger, attempt, starts.get((attempt.cluster, attempt.job_id), set()))
        for attempt in sorted(ended, key=lambda attempt: attempt.ended)
    ]


def move_lost(ledger: Ledger, attempts: Iterable[Attempt]) -> None:
    """Move the work that each failure lost from the productive states of its job to `lost`.

    It is taken from the day of the end first, and never more than there is."""
    for attempt in attempts:
        job = attempt.cluster, attempt.job_id
        productive = [
            key
            for key in ledger.rows
            if (key.cluster, key.job_id) == job
            and key.group == "productive"
            and key.start < attempt.ended
        ]
        left = attempt.lost or 0.0
        for start in sorted({key.start for key in productive}, reverse=True):
            day = [key for key in productive if key.start == start]
            there = sum(ledger.rows[key] for key in day)
            share = min(1.0, left / there) if there else 0.0
            left -= share * there
            for key in day:
                moved = share * ledger.rows[key]
                ledger.rows[key] -= moved
                lost = key._replace(state=LOST)
                ledger.rows[lost] = ledger.rows.get(lost, 0.0) + moved


def _costed(
    api: PrometheusApi, ledger: Ledger, attempt: Attempt, starts: Iterable[float]
) -> Attempt:
    of = {"cluster": attempt.cluster, "job_id": attempt.job_id}

    def value(expression: str, at: float) -> float | None:
        return next((series.value for series in api.query(expression, at)), None)

    def before(metric: str) -> float | None:
        look = milliseconds(LOOK_BACK)
        return value(f"max (last_over_time({select(metric, **of)}[{look}]))", attempt.ended)

    attempt = replace(attempt, lost=before(AT_RISK), gpus=before("slurm_job_gpus"))
    begun = min((when for when in starts if when >= attempt.ended), default=None)
    if not attempt.requeued or begun is None:
        return attempt
    first = Period(begun, min(begun + 3600, ledger.period.end))
    selector = select(JOBS, **of, state=("waiting", "init"))
    samples = value(f"sum (sum_over_time({selector}[{window(first)}]))", first.end)
    interval = _interval(ledger, attempt.cluster, begun)
    return replace(attempt, queued=begun - attempt.ended, startup=(samples or 0.0) * interval)


def _interval(ledger: Ledger, cluster: str, when: float) -> float:
    known = ledger.intervals[cluster]
    return known[max((start for start in known if start <= when), default=min(known))]


def _values(
    api: PrometheusApi, part: Period, metric: str, labels: Labels
) -> Iterator[tuple[Job, float]]:
    """The values of a timestamp metric of jobs, read every five minutes and at the end."""
    newest = f"last_over_time({select(metric, **labels)}[{milliseconds(NEAR)}])"
    query = f"max by (cluster, job_id) ({newest})"
    for track in api.query_range(query, part.start, part.end, NEAR):
        job = track.labels.get("cluster", ""), track.labels.get("job_id", "")
        yield from ((job, value) for value in {value for _, value in track.samples})
    for series in api.query(query, part.end):
        yield _job(series), series.value


def _last(api: PrometheusApi, part: Period, selector: str) -> list[Series]:
    """When jobs had their last sample, to half a minute; PromQL's `timestamp` over a range would
    take far longer."""
    newest = f"last_over_time({selector}[{milliseconds(LAST_STEP - 0.001)}])"
    looks = f"time() * group by (cluster, job_id, alertname) ({newest})"
    return api.query(f"max_over_time(({looks})[{window(part)}:{LAST_STEP:.0f}s])", part.end)


def _job(series: Series) -> Job:
    return series.labels.get("cluster", ""), series.labels.get("job_id", "")


def _apart(times: Iterable[float]) -> Iterator[float]:
    """The times without those within `NEAR` seconds of an earlier one."""
    before = float("-inf")
    for when in sorted(times):
        if when - before >= NEAR:
            yield when
        before = when
