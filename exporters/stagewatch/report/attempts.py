"""Runs of jobs that ended by failure, and what each cost: lost work, time in the queue, the start.

A run ended by failure if Slurm put its job back into the queue (preemption too: the work is lost
all the same), or if the job was seen no more and, in its last five minutes, somebody was woken for
a rank that was `DEAD` or one of `FAILURES` fired.
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
"""Evidence of these alerts that is a failure of the job, if it ends meanwhile."""

FAILURES = ("JobLostNode", "FailedButNotEnded", "FirstFailure")
"""Alerts on a job whose end, while they fire, is a failure."""

NEAR = 300.0
"""Seconds before the end in which such an alert fired; requeues nearer than that count once."""

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
    """A run that ended by failure at `ended`; seconds are GPU-seconds, unless they are of time.

    `lost` is the work since its last checkpoint, None where that is not known; `queued` the time
    in seconds until the job ran again, and `startup` what the next run then spent waiting for its
    ranks and in init; None: it was not seen to run again.
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
        """Whether the job was to run again."""
        return self.how == REQUEUED

    @property
    def cost(self) -> float:
        """GPU-seconds that were paid for and did nothing that lasts."""
        return (self.lost or 0.0) + (self.startup or 0.0)

    @property
    def off(self) -> float:
        """GPU-seconds in which the job was in the queue: not paid, but the job waited."""
        return (self.gpus or 0.0) * (self.queued or 0.0)


def find_attempts(api: PrometheusApi, ledger: Ledger, cluster: Labels) -> list[Attempt]:
    """The runs that ended by failure, by their ends; of the ledger's jobs only."""
    jobs = {(key.cluster, key.job_id) for key in ledger.rows if key.job_id}
    requeues: dict[Job, set[float]] = {}
    starts: dict[Job, set[float]] = {}
    last: dict[Job, float] = {}
    newest: dict[str, float] = {}
    fired: dict[Job, dict[str, float]] = {}
    for each in ledger.bins:
        for job, when in _values(api, each, "slurm_job_requeue_timestamp_seconds", cluster):
            requeues.setdefault(job, set()).add(when)
        if back := sorted({job_id for _, job_id in requeues}):
            name = "slurm_job_start_timestamp_seconds"
            for job, when in _values(api, each, name, {**cluster, "job_id": back}):
                starts.setdefault(job, set()).add(when)
        for found in _last(api, each, select(AT_RISK, **cluster)):
            last[_job(found)] = found.value
        for found in _last(api, each, select(OUTSIDE, **cluster)):
            newest[found.labels.get("cluster", "")] = found.value
        firing = {**cluster, "alertstate": "firing"}
        dead = {"alertname": STALLS, "severity": "critical", "evidence": DEAD}
        for labels in ({"alertname": FAILURES}, dead):
            for found in _last(api, each, select("ALERTS", **firing, **labels)):
                fired.setdefault(_job(found), {})[found.labels.get("alertname", "")] = found.value
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
        _costed(api, ledger, each, starts.get((each.cluster, each.job_id), set()))
        for each in sorted(ended, key=lambda each: each.ended)
    ]


def move_lost(ledger: Ledger, attempts: Iterable[Attempt]) -> None:
    """Move what each failure lost from the productive states of its job to `lost`: of the day of
    its end first, and never more than there is."""
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
        return next((found.value for found in api.query(expression, at)), None)

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
    api: PrometheusApi, each: Period, metric: str, labels: Labels
) -> Iterator[tuple[Job, float]]:
    """The values that a time stamp of jobs had, looked at every five minutes and at the end."""
    newest = f"last_over_time({select(metric, **labels)}[{milliseconds(NEAR)}])"
    query = f"max by (cluster, job_id) ({newest})"
    for track in api.query_range(query, each.start, each.end, NEAR):
        job = track.labels.get("cluster", ""), track.labels.get("job_id", "")
        yield from ((job, value) for value in {value for _, value in track.samples})
    for found in api.query(query, each.end):
        yield _job(found), found.value


def _last(api: PrometheusApi, each: Period, selector: str) -> list[Series]:
    """When jobs had a sample last, to half a minute: `timestamp` over a range takes Prometheus far
    longer than this."""
    newest = f"last_over_time({selector}[{milliseconds(LAST_STEP - 0.001)}])"
    looks = f"time() * group by (cluster, job_id, alertname) ({newest})"
    return api.query(f"max_over_time(({looks})[{window(each)}:{LAST_STEP:.0f}s])", each.end)


def _job(found: Series) -> Job:
    return found.labels.get("cluster", ""), found.labels.get("job_id", "")


def _apart(times: Iterable[float]) -> Iterator[float]:
    """Times, without those that follow another too closely."""
    before = float("-inf")
    for when in sorted(times):
        if when - before >= NEAR:
            yield when
        before = when
