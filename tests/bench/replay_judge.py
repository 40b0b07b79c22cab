"""What the judge says of a job whose life is acted out, look by look."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from stagewatch.core.exposition import Histogram, Samples
from stagewatch.judgement.from_prometheus import METRICS, JobSeries, moment
from stagewatch.judgement.limits import Shown, quantile
from stagewatch.judgement.memory import Course, Moment
from stagewatch.ranks.stages import GAPS, LONGEST_GAP, RECENT_GAP
from tests.bench.replay_series import Job

SUSPECTED, NAMED, PAGED = "suspected", "named", "paged"


@dataclass
class Episode:
    """Consecutive looks that saw the same of one job."""

    job: str
    what: str
    begin: float
    """Seconds of the job's life."""
    evidence: str
    reason: str = ""
    """What the job did."""


@dataclass
class Judge:
    """Looks at a job every so many seconds, where it may be in trouble."""

    every: int
    episodes: list[Episode] = field(default_factory=list)
    _course: Course = field(default_factory=Course)
    _at: float = -1e9
    _last: dict[tuple[str, str], float] = field(default_factory=dict)

    def see(self, job: Job, now: int, out: Samples) -> float:
        """Judge what the agent exports, and note what is new; returns when the first rank will be
        overdue if nothing happens."""
        seen = moment_of(job, now, out)
        if now - self._at > self.every:  # it was in no trouble meanwhile
            self._course = Course(watched=True)
        self._at = now
        for state in self._course.look(seen):
            verdict = state.verdict
            said = {SUSPECTED: verdict.stalled, NAMED: verdict.charges, PAGED: state.paged}
            for what in (one for one, is_so in said.items() if is_so):
                if now - self._last.get((job.id, what), -1e9) > self.every:
                    self.episodes.append(Episode(job.name, what, now, verdict.evidence))
                self._last[job.id, what] = now
        left = [
            rank.budget_seconds - rank.progress_age_seconds
            for rank in seen.ranks
            if rank.budget_seconds is not None and rank.progress_age_seconds is not None
        ]
        return now + min(left, default=0.0)


def moment_of(job: Job, now: int, out: Samples) -> Moment:
    """All ranks of the job, by what the agent exports."""
    series = JobSeries()
    for metric, family in out.families.items():
        if metric.name in METRICS:
            for values, value in family.items():
                labels = dict(zip(metric.labels, values, strict=True))
                if labels["job_id"] == job.id and not isinstance(value, Histogram):
                    series.by[metric.name].append((labels | {"node": job.name}, value))
    # The first gap of a stage is in no histogram yet.
    for key in {**out.families.get(LONGEST_GAP, {}), **out.families.get(GAPS, {})}:
        if key[0] == job.id:
            series.shown.setdefault(key[1], {})[key[2]] = _shown(out, key)
    return moment(job.id, series, float(now))


def _shown(out: Samples, key: tuple[str, ...]) -> Shown:
    """What a role has shown of a stage."""
    longest, recent = (out.value(metric, *key) or 0.0 for metric in (LONGEST_GAP, RECENT_GAP))
    gaps = out.families.get(GAPS, {}).get(key)
    if not isinstance(gaps, Histogram) or not gaps.count:
        return Shown(longest_seconds=longest, recent_seconds=recent)
    cumulative = (0, *gaps.cumulative, gaps.count)
    counts = tuple(b - a for a, b in itertools.pairwise(cumulative))
    return Shown(gaps.count, quantile(counts, 0.99), longest, recent)
