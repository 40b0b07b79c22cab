"""Healthy jobs that look like stalls: nobody is woken or told, from beginning to end.

A suspicion, which is for those who look, is allowed where a pause is longer than what the job has
taught and nothing of the job's work shows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.lab import Job, Lab

SILENCE_SECONDS = 180.0
"""How long each of them is watched, from its start."""

SEEN = {
    "compile_again": ("job:rl_stall:excused", {"excuse": "computing"}),
    "checkpoint": ("rl_rank_stage_open_seconds", {"stage": "checkpoint"}),
    "evaluation": ("job:rl_stall:excused", {"excuse": "long_stage"}),
    "first_step": ("rl_rank_stage_open_seconds", {"stage": "init"}),
    "idle": ("job:rl_stall:excused", {"excuse": "idle"}),
    "data_pause": ("rl_rank_stage_open_seconds", {"stage": "train"}),
    "debugger": ("job:rl_stall:excused", {"excuse": "debugger"}),
    "requeued": ("rl_rank_up", {}),
}
"""What shows that the job really did what it is here for."""

WRONG = ("job:rl_stall:page", "rank:rl_straggler:ratio")
SUSPICION = ("job:rl_stall:active", "job:rl_stall:culprit", "job:rl_stall:group_only")
SUSPECTED = ("compile_again", "evaluation", "first_step")
"""Longer than a minute, or before the first gap has taught anything."""


@pytest.mark.parametrize(
    "scene", [pytest.param(name, marks=pytest.mark.scene(name)) for name in SEEN]
)
def test_a_healthy_job_is_left_in_peace(scene: str, job: Job) -> None:
    left = SILENCE_SECONDS - (time.monotonic() - job.began)
    time.sleep(max(0.0, left))
    seconds = time.monotonic() - job.began
    metric, labels = SEEN[scene]
    assert job.ever(metric, seconds, **labels), f"never seen: {metric} {labels}; {job.state()}"
    assert not told(job, seconds)
    wrong = WRONG if scene in SUSPECTED else WRONG + SUSPICION
    for name in wrong if scene != "requeued" else ():  # its old ranks are gone until the new come
        assert not [found.labels for found in job.ever(name, seconds)], name


def told(job: Job, seconds: float) -> list[dict[str, str]]:
    """The alerts that somebody was told of."""
    fired = job.ever("ALERTS", seconds, alertstate="firing")
    return [found.labels for found in fired if found.labels["severity"] != "info"]


@pytest.fixture
def small_lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab of its own, for what would disturb the others."""
    with Lab(tmp_path, 2) as lab:
        yield lab


@pytest.mark.timeout(600)
def test_a_machine_that_slept_wakes_up_in_silence(small_lab: Lab) -> None:
    """As a paused virtual machine does: everything stops at once, and goes on at once."""
    job = small_lab.job("suspended", 4)
    small_lab.wait(job.armed, "the budget is known")
    small_lab.pause(40.0)
    small_lab.wait(
        lambda: len(small_lab.api.query('up{job="stagewatch"} == 1')) == 2, "the agents are back"
    )
    before = {found.labels["rank"]: found.value for found in job.query("rl_rank_step")}

    def steps() -> list[float]:
        found = job.query("rl_rank_step")
        return [series.value - before.get(series.labels["rank"], 0) for series in found]

    small_lab.wait(lambda: len(steps()) == 4 and min(steps()) > 10, "training goes on")
    assert not told(job, 600)
