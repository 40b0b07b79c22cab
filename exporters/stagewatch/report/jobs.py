"""What an incident did to a job: when the job stopped, stood still and came back."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagewatch.report.history import Grid, History, Labels, Line, Values, by_job
from stagewatch.report.incidents import JOIN_SECONDS, Sign
from stagewatch.report.periods import Period

STANDSTILL_SECONDS = 60.0
STANDSTILL_STEPS = 5
"""A live job stands still when a sign names it and it completes no step for this long, and for the
time of this many usual steps."""

FAILURES = ("down", "fail", "silent")
"""Signs at a node that end a job; a drain lets it end by itself."""


@dataclass(frozen=True, slots=True)
class JobStory:
    """What an incident did to one job.  Times are Unix seconds, None where not seen."""

    job_id: str
    hurt: bool
    """Whether the incident explains an end of the job: a sign names it, or its node failed."""
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
    steps_lost: float | None = None
    """The last step before the end minus the first one after it."""

    @property
    def interrupted(self) -> bool:
        """Whether it stopped and came back, stopped by a failure, or stood still."""
        stopped = self.ended is not None and (self.hurt or self.resumed is not None)
        return stopped or bool(self.stalled) or self.standstill is not None

    @property
    def restored(self) -> float | None:
        """When the job was back: at its first step, else when it ran, else when a stall ended."""
        if self.ended is not None:
            return self.training if self.training is not None else self.resumed
        if self.standstill is not None:
            return self.standstill.end if self.goes_on else None
        return self.stalled[-1].end if self.stalled else None

    @property
    def without_gpus(self) -> float | None:
        """GPU-seconds from its end until it was restored; None if unknown."""
        if not self.interrupted or None in (self.gpus, self.ended, self.restored):
            return None
        return (self.gpus or 0.0) * ((self.restored or 0.0) - (self.ended or 0.0))


def stories(
    history: History,
    cluster: str,
    running: Mapping[str, Values],
    near: Period,
    signs: Sequence[Sign],
) -> list[JobStory]:
    """What became of each job that ran, where it stopped `near` the incident."""
    if not running:
        return []
    grid = history.grid
    jobs: Labels = {"cluster": cluster, "job_id": tuple(running)}
    step = live(history, "rl_rank_step", jobs)
    steps = by_job(history.lines(f"max by (job_id) ({step})"))
    held = by_job(history.most("rl_rank_info", jobs, "job_id", "count"))
    held |= by_job(history.most("slurm_job_gpus", jobs, "job_id"))
    told = []
    for job, values in running.items():
        ended, resumed = _stops(grid, values, near)
        training, lost = _steps(grid, steps.get(job), ended, resumed)
        hurt = any(_hurts(sign, job, ended, 3 * grid.step) for sign in signs)
        standstill, goes_on = None, False
        if hurt and ended is None:
            standstill, goes_on = _standstill(grid, steps.get(job), near)
        stalls = (each for each in signs if each.kind == "stall" and each.job_id == job)
        gpus = [count for _, count in held[job].known() if count] if job in held else []
        told.append(
            JobStory(
                job_id=job,
                hurt=hurt,
                ended=ended,
                resumed=resumed,
                training=training,
                stalled=tuple(Period(each.start, each.end) for each in stalls),
                standstill=standstill,
                goes_on=goes_on,
                gpus=max(gpus, default=None),
                steps_lost=lost,
            )
        )
    return told


def live(history: History, metric: str, jobs: Labels) -> str:
    """PromQL for a metric of live ranks only: ranks of an earlier run may still be exported as they
    ended."""
    up = history.last("rl_rank_up", {"cluster": jobs["cluster"], "job_id": jobs["job_id"]})
    return f"{history.last(metric, jobs)} and on (cluster, node, job_id, role, rank) ({up} == 1)"


def _hurts(sign: Sign, job: str, ended: float | None, margin: float) -> bool:
    """Whether a sign names the job, or is of a node's failure at the time of its end."""
    if sign.job_id == job or ended is None:
        return sign.job_id == job
    return sign.kind in FAILURES and sign.start - margin <= ended <= sign.end + margin


def _stops(grid: Grid, running: Values, near: Period) -> tuple[float | None, float | None]:
    """When a job first stopped near a period, and when it ran again for good: if it went back into
    the queue within five minutes, a later run counts."""
    begin = max(0, grid.index(near.start - JOIN_SECONDS))
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
            if when > near.end + JOIN_SECONDS:
                break
            ended = when
        elif not runs:
            again = when
        elif resumed is None or (again is not None and again - resumed < JOIN_SECONDS):
            resumed = when
        else:
            break
    return ended, resumed


def _steps(
    grid: Grid, steps: Line | None, ended: float | None, resumed: float | None
) -> tuple[float | None, float | None]:
    """When a step was first completed after the job resumed, and how many steps were repeated."""
    if steps is None or ended is None or resumed is None:
        return None, None
    before = [value for at, value in steps.known() if at < grid.index(ended)]
    first: float | None = None
    for at, value in steps.known():
        if at < grid.index(resumed):
            continue
        if first is not None and value > first:
            lost = max(0.0, before[-1] - first) if before else None
            return grid.time(at), lost
        first = value if first is None else min(first, value)
    return None, None


def _standstill(grid: Grid, steps: Line | None, near: Period) -> tuple[Period | None, bool]:
    """The first long time without a step that overlaps a period, and whether steps followed.

    It is long compared with the median of earlier steps; without two steps there is no standstill.
    """
    if steps is None:
        return None, False
    rises = [grid.time(at) for at, _ in steps.rises()]
    usual = [b - a for a, b in itertools.pairwise(rises) if b <= near.start]
    if not usual:
        return None, False
    least = max(STANDSTILL_SECONDS, STANDSTILL_STEPS * statistics.median(usual))
    for begin, end in itertools.pairwise([*rises, grid.time(steps.known()[-1][0])]):
        if end - begin >= least and end > near.start and begin < near.end + JOIN_SECONDS:
            return Period(begin, end), end in rises
    return None, False
