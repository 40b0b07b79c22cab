"""The facts on the status page: the latest series of a node as plain values.

The templates decide how the page shows them.  Metrics are looked up by name, so that no collector
needs to be imported.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from stagewatch.core.collector import Page
from stagewatch.core.findings import Finding
from stagewatch.core.runner import Job, Runner
from stagewatch.core.words import duration
from stagewatch.web.series import Key, Series, key_of, natural

WARM_CELSIUS = 75.0
HOT_CELSIUS = 85.0
"""The threshold of the alert `GPUTemperatureHigh`."""

RUNBOOK = "stagewatch assets export assets && less assets/alerts/runbooks/JobStalled.md"
"""A package has the runbooks, but not as files that a user finds."""
OPEN_ROWS = 48
"""Jobs are unfolded until they have so many rows; each further healthy job shows one line."""

_RANK = ("job_id", "role", "rank")
_GPU = ("gpu", "uuid", "mig")
_GPU_READINGS = (
    "gpu_up",
    "gpu_temperature_celsius",
    "gpu_utilization_ratio",
    "gpu_memory_used_bytes",
    "gpu_power_watts",
)
"""A GPU with one of these metrics is shown, even without its `gpu_info`."""

Tone = Literal["good", "warn", "bad", "plain"]
T = TypeVar("T")
Judged = Callable[[], Sequence[Finding] | None]
"""Returns the findings on the jobs; None if they were not judged in the last seconds."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a job."""

    job_id: str
    role: str
    rank: str
    wait: str
    """Its wait class; `gone` if it has ended, empty if unknown."""
    pid: str
    gpu: str
    stage: str
    substage: str
    """The framework's own name of the stage; empty if it equals `stage`."""
    open_seconds: float | None
    step: float | None
    progress_age: float | None
    """Seconds since the last progress."""
    memory_bytes: float | None
    failure: tuple[str, str] | None
    """The first exception and the stage that raised it."""
    frame: str
    """Its line in the user's own code when its job began to hang; empty without a hang."""
    culprit: bool = False
    """Whether it is at fault."""


@dataclass(frozen=True, slots=True)
class JobRanks:
    """One job's ranks on this node, those at fault first."""

    job_id: str
    ranks: Sequence[Rank]
    findings: Sequence[Finding] = ()

    @property
    def ended(self) -> bool:
        """Whether no rank of the job lives."""
        return all(rank.wait == "gone" for rank in self.ranks)

    @property
    def lost(self) -> int:
        """Number of ranks that are gone while others live."""
        return 0 if self.ended else sum(rank.wait == "gone" for rank in self.ranks)

    @property
    def tone(self) -> Tone:
        """How alarming it is."""
        if self.findings:
            return "bad"
        return "plain" if self.ended else "warn" if self.lost else "good"

    @property
    def progress_age(self) -> float | None:
        """Seconds since any of its ranks made progress."""
        ages = [rank.progress_age for rank in self.ranks if rank.progress_age is not None]
        return min(ages, default=None)

    def waits(self) -> list[tuple[str, int]]:
        """The number of ranks by wait class, the most frequent first."""
        return _counted(rank.wait or "unknown" for rank in self.ranks)


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU or MIG instance."""

    name: str
    model: str
    recorded: bool
    """Its readings come from a file."""
    lost: bool
    celsius: float | None
    slowdown_celsius: float | None
    """The device's own limit."""
    utilization: float | None
    memory_bytes: float | None
    memory_total_bytes: float | None
    watts: float | None
    limit_watts: float | None
    jobs: Sequence[tuple[str, str]]
    """Job and user of each allocation."""

    @property
    def heat(self) -> Tone:
        """How alarming the temperature is."""
        if self.celsius is None:
            return "plain"
        if self.celsius >= min(HOT_CELSIUS, self.slowdown_celsius or HOT_CELSIUS):
            return "bad"
        return "warn" if self.celsius >= WARM_CELSIUS else "good"


@dataclass(frozen=True, slots=True)
class CollectorState:
    """What a collector is doing."""

    name: str
    state: str
    tone: Tone
    message: str


@dataclass(frozen=True, slots=True)
class Subject(Generic[T]):
    """The rows of one kind on this node, and whether their collector answers."""

    rows: Sequence[T]
    known: bool
    """Whether a collector answers; if not, there may be more than the rows."""
    trouble: str
    """Why the collector does not answer."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Everything on the page; a subject without a collector in this agent is None."""

    ranks: Subject[Rank] | None
    gpus: Subject[GPU] | None
    collectors: Sequence[CollectorState]
    findings: Sequence[Finding] | None = None
    """The findings on the jobs; None if they were not judged."""
    judged: bool = False
    """Whether this agent judges jobs."""
    jobs: Sequence[JobRanks] = field(default_factory=list)
    """Jobs with something wrong come first, then live ones, then ended ones."""
    denied: int = 0
    """Number of processes of other users that the agent may not read."""
    over_quota: Mapping[str, float] = field(default_factory=dict)
    """Bytes in the record directory by uid, of users above their quota."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of series for which the page had no room, by uid."""

    def live(self) -> list[JobRanks]:
        """The jobs with a living rank or a finding."""
        return [job for job in self.jobs if not job.ended or job.findings]

    def ended(self) -> list[JobRanks]:
        """The other jobs."""
        return [job for job in self.jobs if job.ended and not job.findings]

    def waits(self) -> list[tuple[str, int]]:
        """The number of ranks of live jobs by wait class, the most frequent first."""
        live = (rank for job in self.live() for rank in job.ranks)
        return _counted(rank.wait or "unknown" for rank in live)

    def all_is_well(self) -> str:
        """The sentence for a node on which nothing is wrong with any job."""
        jobs = self.live()
        if not jobs:
            return "No job runs here."
        ranks = [rank for job in jobs for rank in job.ranks]
        ages = [rank.progress_age for rank in ranks if rank.progress_age is not None]
        last = f", all with progress in the last {duration(max(ages))}" if ages else ""
        return (
            f"No job hangs: {_several(len(ranks), 'rank')} of {_several(len(jobs), 'job')}{last}."
        )


def next_steps(job_id: str) -> list[tuple[str, str]]:
    """What to do about a hung job, each with its command."""
    job = shlex.quote(job_id)
    steps = [("Stacks of its ranks, on their node", f"stagewatch inspect --evidence {job}")]
    if re.fullmatch(r"\d+(_\d+)?", job_id):  # of Slurm
        steps += [("Restart it", f"scontrol requeue {job}"), ("End it", f"scancel {job}")]
    return [*steps, ("What it means, and what helps", RUNBOOK)]


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _counted(names: Iterable[str]) -> list[tuple[str, int]]:
    return Counter(names).most_common()


def facts_of(runner: Runner, judged: Judged | None = None) -> NodeFacts:
    """The present facts, from the latest collections; `judged` returns the findings on jobs."""
    jobs = list(runner.jobs.values())
    fresh = [snapshot for job in jobs if (snapshot := job.fresh()) is not None]
    series = Series(snapshot.samples for snapshot in fresh)
    findings = judged() if judged else None
    ranks = _ranks(series, findings or ())
    return NodeFacts(
        _subject(jobs, ranks, "ranks"),
        _subject(jobs, _gpus(series), "gpus"),
        [_collector(job) for job in jobs],
        findings,
        judged is not None and any(job.page == "verdicts" for job in jobs),
        _jobs(ranks, findings or ()),
        int(sum(count for _, count in series.samples("stagewatch_processes_denied"))),
        {
            labels["uid"]: size
            for labels, size in series.samples("stagewatch_record_directory_over_quota_bytes")
        },
        {
            labels["uid"]: int(count)
            for labels, count in series.samples("stagewatch_rank_series_left_out")
        },
    )


def _subject(jobs: Sequence[Job], rows: Sequence[T], page: Page) -> Subject[T] | None:
    sources = [job for job in jobs if job.page == page]
    if not sources:
        return None
    return Subject(rows, any(job.answering() for job in sources), _trouble(sources[-1]))


def _jobs(ranks: Sequence[Rank], findings: Sequence[Finding]) -> list[JobRanks]:
    by_job: dict[str, list[Rank]] = {}
    for rank in ranks:
        by_job.setdefault(rank.job_id, []).append(rank)
    jobs = [
        JobRanks(job_id, those, [finding for finding in findings if finding.job_id == job_id])
        for job_id, those in by_job.items()
    ]
    return sorted(jobs, key=lambda job: (not job.findings, job.ended, not job.lost))


def _ranks(series: Series, findings: Sequence[Finding]) -> list[Rank]:
    """Every rank of the node, those at fault first, then those that are gone."""
    culprits = {key for finding in findings for key in finding.culprits}
    value = series.reader(_RANK)
    up = series.values_by("rl_rank_up", _RANK)
    info = series.labels_by("rl_rank_info", _RANK)
    in_force = [labels for labels, one in series.samples("rl_rank_wait_class") if one]
    waits = {key_of(labels, _RANK): labels["class"] for labels in in_force}
    stages = series.labels_by("rl_rank_stage_open_seconds", _RANK)
    failures = series.labels_by("rl_rank_first_failure_timestamp_seconds", _RANK)
    frames = series.labels_by("rl_rank_stack_frame_info", _RANK)
    gpu_of = {uuid: gpu for gpu, uuid, _ in series.labels_by("gpu_info", _GPU)}

    def rank(key: Key) -> Rank:
        labels, stage, failure = info.get(key, {}), stages.get(key, {}), failures.get(key)
        substage = stage.get("substage", "")
        job_id, role, name = key
        return Rank(
            job_id=job_id,
            role=role,
            rank=name,
            wait="gone" if up.get(key) == 0 else waits.get(key, ""),
            pid=labels.get("pid", ""),
            gpu=gpu_of.get(labels.get("uuid", ""), ""),
            stage=stage.get("stage", ""),
            substage=substage if substage != stage.get("stage") else "",
            open_seconds=value("rl_rank_stage_open_seconds", key),
            step=value("rl_rank_step", key),
            progress_age=value("rl_rank_progress_age_seconds", key),
            memory_bytes=value("rl_rank_resident_memory_bytes", key),
            failure=(failure.get("error", ""), failure.get("stage", "")) if failure else None,
            frame=frames.get(key, {}).get("frame", ""),
            culprit=(job_id, role, name) in culprits,
        )

    ranks = [rank(key) for key in sorted({*up, *info, *waits, *stages}, key=natural)]
    return sorted(ranks, key=lambda rank: (not rank.culprit, rank.wait != "gone"))


def _gpus(series: Series) -> list[GPU]:
    info = series.labels_by("gpu_info", _GPU)
    value = series.reader(_GPU)
    jobs: dict[Key, list[tuple[str, str]]] = {}
    for labels, _ in series.samples("gpu_job_info"):
        job = (labels.get("job_id", ""), labels.get("user", ""))
        jobs.setdefault(key_of(labels, _GPU), []).append(job)

    def gpu(key: Key) -> GPU:
        labels = info.get(key, {})
        index, uuid, mig = key
        return GPU(
            name="/".join(filter(None, (index, mig))),
            model=labels.get("model") or labels.get("type") or uuid,
            recorded=labels.get("source") == "recorded",
            lost=value("gpu_up", key) == 0,
            celsius=value("gpu_temperature_celsius", key),
            slowdown_celsius=value("gpu_temperature_slowdown_celsius", key),
            utilization=value("gpu_utilization_ratio", key),
            memory_bytes=value("gpu_memory_used_bytes", key),
            memory_total_bytes=value("gpu_memory_total_bytes", key),
            watts=value("gpu_power_watts", key),
            limit_watts=value("gpu_power_limit_watts", key),
            jobs=jobs.get(key, ()),
        )

    keys = {*info, *(key for name in _GPU_READINGS for key in series.values_by(name, _GPU))}
    return [gpu(key) for key in sorted(keys, key=natural)]


def _collector(job: Job) -> CollectorState:
    state, tone = _state(job)
    message = job.error or (job.nothing if job.no_data else "")
    if stuck := job.stuck_seconds():
        past = f"{duration(stuck)} past its deadline of {duration(job.deadline)}"
        message = f"{past}: {job.error}" if job.error else past
    return CollectorState(job.name, state, tone, message)


def _state(job: Job) -> tuple[str, Tone]:
    """What a collector is doing, in a word or two."""
    if job.stuck_seconds():
        return "stuck", "bad"
    if job.error is not None:
        return "failing", "bad"
    if job.no_data:
        return "nothing here", "plain"
    if job.duration is None:
        return "starting", "plain"
    return ("ok", "good") if job.answering() else ("stale", "warn")


def _trouble(job: Job) -> str:
    """Why a collector has no data; empty while it answers."""
    if job.answering():
        return ""
    if job.stuck_seconds():
        return f"Nothing is known: the collector {job.name} is stuck."
    if job.error is not None:
        return f"Nothing is known: the collector {job.name} fails: {job.error[:300]}"
    return "Not collected yet."
