"""The controller's progress in its log: how it is written, and how others read it."""

from __future__ import annotations

import re

STAGE_STARTS = "start to %s, step: %d"
STEP_DONE = "step %d done in %.1f s"
CLEANED_UP = "scheduler cleanup_jobs finished"

_DONE = re.compile(r"step (\d+) done in ([\d.]+) s")


def started(log: str, stage: str, step: int) -> bool:
    """Whether a stage (`train`, `update weights` ...) of a step has begun."""
    return f"{STAGE_STARTS % (stage, step)}\n" in log


def starts(log: str, stage: str) -> int:
    """How often a stage has begun, over all steps."""
    return log.count(STAGE_STARTS.removesuffix("%d") % stage)


def steps_done(log: str) -> dict[int, float]:
    """The steps that are done, with their seconds."""
    return {int(step): float(took) for step, took in _DONE.findall(log)}


def cleaned_up(log: str) -> bool:
    """Whether the controller has given up and stopped the workers' jobs."""
    return CLEANED_UP in log
