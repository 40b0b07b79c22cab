"""What an incident did to a job: when it stopped, came back, and how fast it was then."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stagewatch.report.close_look import CloseLook, by_job
from stagewatch.report.history import Grid
from stagewatch.report.periods import Period
from stagewatch.report.signals import one_of
from stagewatch.report.signs import JOIN_SECONDS, Sign

BEFORE_SECONDS = 600.0
"""Over so long throughput is averaged, before and after."""

STANDSTILL_SECONDS = 60.0
STANDSTILL_STEPS = 5
"""A job that lives stands still when it completes no step for so long and for so many usual steps,
provided that a sign names it."""

FAILURES = ("down", "fail", "silent")
"""Signs at a node that end a job; a drain lets it end by itself."""

_LIVE = (
    " and on (cluster, node, job_id, role, rank) (last_over_time(rl_rank_up{JOBS}[{window}]) == 1)"
)
"""Of ranks that live: those of an earlier run may still be shown as they were at their end."""

THROUGHPUT = (
    'sum by (job_id) (last_over_time(rl_scalar{name="samples_per_second", JOBS}[{window}])'
    f"{_LIVE})"
)
_STEP = f"max by (job_id) (last_over_time(rl_rank_step{{JOBS}}[{{window}}]){_LIVE})"
_STEPS = "60 * max by (job_id) (deriv(rl_rank_step{JOBS}[5m]))"


@dataclass(frozen=True, slots=True)
class JobStory:
    """What an incident did to one job.  Times are Unix seconds, None where not seen."""

    job_id: str
    hurt: bool
    """Whether an end of it is laid to the incident: a sign names the job, or its node failed."""
    ended: float | None = None
    resumed: float | None = None
    training: float | None = None
    """A step was completed after the job resumed."""
    stalled: tuple[Period, ...] = ()
    standstill: Period | None = None
    """It lived without completing a step: its ranks wait, or have given up."""
    goes_on: bool = False
    """Whether a step was completed after the standstill."""
    gpus: float | None = None
    throughput_before: float | None = None
    throughput_after: float | None = None
    throughput_unit: str = ""
    steps_lost: float | None = None
    """Last step before, less the first one after."""

    @property
    def interrupted(self) -> bool:
        """Whether it stopped and came back, stopped by a failure, or stood still."""
        stopped = self.ended is not None and (self.hurt or self.resumed is not None)
        return stopped or bool(self.stalled) or self.standstill is not None

    @property
    def restored(self) -> float | None:
        """When it trained again: at its first step, else when it ran, else when a stall ended."""
        if self.ended is not None:
            return self.training if self.training is not None else self.resumed
        if self.standstill is not None:
            return self.standstill.end if self.goes_on else None
        return self.stalled[-1].end if self.stalled else None

    @property
    def throughput_change(self) -> float | None:
        """As a share of what it was before; negative: slower."""
        if not self.throughput_before or self.throughput_after is None:
            return None
        return (self.throughput_after - self.throughput_before) / self.throughput_before


def stories(
    look: CloseLook,
    jobs: Sequence[str],
    near: Period,
    running: Mapping[str, Sequence[float | None]],
    signs: Sequence[Sign],
    throughput: str,
) -> list[JobStory]:
    """What became of each job, where it stopped `near` the incident."""
    began = near.start
    if not jobs:
        return []
    chosen = f"{look.cluster}, {one_of('job_id', jobs)}"
    asked = (throughput or THROUGHPUT).replace("JOBS", chosen)
    rates = by_job(look.history.lines(asked, "throughput"))
    unit = "" if throughput else "samples/s"
    if not rates and not throughput:
        rates = by_job(look.history.lines(_STEPS.replace("JOBS", chosen), "steps"))
        unit = "steps/min"
    steps = by_job(look.history.lines(_STEP.replace("JOBS", chosen), "steps"))
    gpus = by_job(look.ask(f"slurm_job_gpus{{{chosen}}}", "job_id", "GPUs"))
    ranks = by_job(
        look.history.lines(
            f"count by (job_id) (last_over_time(rl_rank_info{{{chosen}}}[{{window}}]))", "GPUs"
        )
    )
    requeued = by_job(
        look.ask(f"slurm_job_requeue_timestamp_seconds{{{chosen}}}", "job_id", "runs")
    )
    started = by_job(look.ask(f"slurm_job_start_timestamp_seconds{{{chosen}}}", "job_id", "runs"))
    found = []
    for job in jobs:
        ended, resumed = _stops(
            look.history.grid, running[job], near.start - JOIN_SECONDS, near.end + JOIN_SECONDS
        )
        ended = _exact(ended, requeued.get(job), began)
        resumed = _exact(resumed, started.get(job), began)
        training, lost = _steps(look.history.grid, steps.get(job), ended, resumed)
        stalled = tuple(
            Period(s.start, s.end) for s in signs if s.kind == "stall" and s.job_id == job
        )
        hurt = any(_hurts(sign, job, ended, 3 * look.history.grid.step) for sign in signs)
        standstill, goes_on = None, False
        if hurt and ended is None:
            standstill, goes_on = _standstill(look.history.grid, steps.get(job), near)
        held = [value for value in gpus.get(job) or ranks.get(job) or [] if value]
        story = JobStory(
            job_id=job,
            hurt=hurt,
            ended=ended,
            resumed=resumed,
            training=training,
            stalled=stalled,
            standstill=standstill,
            goes_on=goes_on,
            gpus=max(held, default=None),
            steps_lost=lost,
            throughput_unit=unit,
        )
        until = story.restored
        values = rates.get(job) or rates.get("")
        found.append(_with_throughput(story, look.history.grid, values, began, until))
    return found


def _hurts(sign: Sign, job: str, ended: float | None, margin: float) -> bool:
    """Whether a sign names the job, or is of a node's failure at the time of its end."""
    if sign.job_id == job or ended is None:
        return sign.job_id == job
    return sign.kind in FAILURES and sign.start - margin <= ended <= sign.end + margin


def _stops(
    grid: Grid, running: Sequence[float | None], since: float, until: float
) -> tuple[float | None, float | None]:
    """When it first stopped between two times, and when it ran again for good: if it was put back
    once more within five minutes, the last time counts."""
    begin = max(0, grid.index(since))
    known = [(at, bool(value)) for at, value in enumerate(running) if value is not None]
    ended: float | None = None
    resumed: float | None = None
    again: float | None = None  # when it stopped after that
    for (_, was), (at, runs) in itertools.pairwise(known):
        when = grid.time(at)
        if at < begin or was == runs:
            continue
        if ended is None:
            if runs:
                continue
            if when > until:
                break
            ended = when
        elif not runs:
            again = when
        elif resumed is None or (again is not None and again - resumed < JOIN_SECONDS):
            resumed = when
        else:
            break
    return ended, resumed


def _exact(seen: float | None, said: Sequence[float | None] | None, began: float) -> float | None:
    """What Slurm says of a moment that was seen, where that is a little earlier."""
    if seen is None or said is None:
        return seen
    near = [value for value in said if value is not None and began - JOIN_SECONDS <= value <= seen]
    return max((value for value in near if seen - value < JOIN_SECONDS), default=seen)


def _steps(
    grid: Grid, steps: Sequence[float | None] | None, ended: float | None, resumed: float | None
) -> tuple[float | None, float | None]:
    """When a step was completed after the job resumed, and how many had to be done again."""
    if steps is None or ended is None or resumed is None:
        return None, None
    before = [value for value in steps[: grid.index(ended)] if value is not None]
    first: float | None = None
    for at in range(max(0, grid.index(resumed)), grid.count):
        value = steps[at]
        if value is None:
            continue
        if first is not None and value > first:
            lost = max(0.0, before[-1] - first) if before else None
            return grid.time(at), lost
        first = value if first is None else min(first, value)
    return None, None


def _standstill(
    grid: Grid, steps: Sequence[float | None] | None, near: Period
) -> tuple[Period | None, bool]:
    """The first long time without a step that reaches into a period, and whether steps followed.

    A usual step is the median of those before; of a job that showed no two steps nothing is said.
    """
    known = [(grid.time(at), value) for at, value in enumerate(steps or ()) if value is not None]
    rises = [when for (_, last), (when, value) in itertools.pairwise(known) if value > last]
    usual = [b - a for a, b in itertools.pairwise(rises) if b <= near.start]
    if not usual:
        return None, False
    least = max(STANDSTILL_SECONDS, STANDSTILL_STEPS * statistics.median(usual))
    for begin, end in itertools.pairwise([*rises, known[-1][0]]):
        if end - begin >= least and end > near.start and begin < near.end + JOIN_SECONDS:
            return Period(begin, end), end in rises
    return None, False


def _with_throughput(
    story: JobStory,
    grid: Grid,
    values: Sequence[float | None] | None,
    began: float,
    until: float | None,
) -> JobStory:
    if values is None or not story.interrupted:
        return story
    before = _mean(values, grid, began - BEFORE_SECONDS, began)
    after = None if until is None else _mean(values, grid, until, until + BEFORE_SECONDS)
    return replace(story, throughput_before=before, throughput_after=after)


def _mean(values: Sequence[float | None], grid: Grid, start: float, end: float) -> float | None:
    chosen = values[max(0, grid.index(start)) : max(0, grid.index(end))]
    known = [value for value in chosen if value is not None]
    return sum(known) / len(known) if known else None
