"""Which jobs are slow as a whole, on either side of each threshold, and over their hours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest

from stagewatch.judgement import slow_jobs
from tests.alerts.promtool import needs_promtool, series
from tests.judgement.promtool_queries import PromtoolQueries

HOUR = slow_jobs.Hour(step_seconds=15.0, steps=240, best_seconds=10.0)


@pytest.mark.parametrize(
    ("hour", "told"),
    [
        (HOUR, "best_hours"),
        (replace(HOUR, step_seconds=12.0), None),
        (replace(HOUR, steps=6), None),  # one step at each end of the hour may be cut off
        (replace(HOUR, growth=1.3), None),  # its sequences are longer
        (replace(HOUR, best_seconds=None), None),
        (replace(HOUR, best_seconds=15.0, earlier_seconds=10.0), "earlier_runs"),
        (replace(HOUR, earlier_seconds=5.0), "best_hours"),
    ],
)
def test_a_job_is_slow_beside_its_best_hours_or_earlier_runs(
    hour: slow_jobs.Hour, told: str | None
) -> None:
    slow = slow_jobs.slow_job(hour)
    assert (slow.beside if slow else None) == told


@pytest.mark.parametrize(
    ("runs", "seconds"),
    [
        ([10.0, 10.0], None),
        ([10.0, 10.0, 11.0], 10.0),
        ([10.0, 15.0, 20.0], None),  # they differ
    ],
)
def test_earlier_runs_tell_something_where_they_agree(
    runs: list[float], seconds: float | None
) -> None:
    assert slow_jobs.usual(runs) == seconds


def test_quantiles_are_those_of_promql() -> None:
    assert [slow_jobs.quantile(share, [4.0, 1.0, 2.0]) for share in (0, 0.25, 0.5, 1)] == [
        1,
        1.5,
        2,
        4,
    ]


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ({("train", "work"): 5.0}, [slow_jobs.Cause("work", "train", 1.0)]),
        (
            {("train", "waiting"): 2.0, ("rollout", "waiting"): 2.0, ("train", "work"): 1.0},
            [slow_jobs.Cause("waiting", "", 0.8)],
        ),
        ({("train", "work"): 5.0, ("", "data"): 4.0}, [slow_jobs.Cause("data", "", 0.8)]),
        ({("train", "waiting"): 5.0, ("", "device"): 4.0}, [slow_jobs.Cause("device", "", 0.8)]),
    ],
)
def test_the_cause_is_what_most_of_the_lost_time_went_to(
    lost: Mapping[tuple[str, str], float], told: list[slow_jobs.Cause]
) -> None:
    assert slow_jobs.causes(lost, 5.0) == told


LIVE = """
groups:
  - name: live
    rules:
      - record: job:rl_ranks_live:count
        expr: count by (cluster, job_id, role) (rl_rank_up == 1)
"""


class Jobs:
    """Jobs of one rank each, minute by minute, in promtool's notation."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def add(
        self,
        job_id: str,
        minutes: range,
        steps: Callable[[int], float],
        parts: Mapping[str, Callable[[int], float]],
        name: str = "",
    ) -> None:
        """`parts`: seconds a minute by `work`, `waiting` or `data`, and after a slash the stage."""
        who = {"cluster": "c", "node": "n1", "job_id": job_id}
        rank = {**who, "role": "train", "rank": 0}
        self._put("rl_rank_up", [1.0 for _ in minutes], minutes, **rank)
        self._put("rl_newest_step", accumulate(map(steps, minutes)), minutes, **rank)
        if name:
            info = [1.0 for _ in minutes]
            self._put("rl_job_info", info, minutes, **who, job_name=name, uid=1000)
        for part, seconds in parts.items():
            kind, _, stage = part.partition("/")
            labels = {"role": "train", "stage": stage, "part": kind}
            grown = accumulate(map(seconds, minutes))
            self._put("rl_spent_seconds_total", grown, minutes, **who, **labels)

    def _put(self, name: str, values: object, minutes: range, **labels: object) -> None:
        text = " ".join(f"{value:.6g}" for value in values)  # type: ignore[attr-defined]
        blank = f"_x{minutes.start - 1} " if minutes.start > 1 else "_ " * minutes.start
        self.given[series(name, **labels)] = blank + text


Watched = Callable[[Jobs, list[int]], list[slow_jobs.JobsLook]]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """What a judge sees after so many minutes."""
    live = tmp_path / "live.rules.yaml"
    live.write_text(LIVE)

    def play(jobs: Jobs, minutes: list[int]) -> list[slow_jobs.JobsLook]:
        rules = [live, "slow.rules.yaml", "slow-jobs.rules.yaml"]
        api = PromtoolQueries(tmp_path, rules, jobs.given, interval="1m")
        return api.ask(lambda: [slow_jobs.JobsWatch(api).look(60.0 * minute) for minute in minutes])

    return play


def told(look: slow_jobs.JobsLook) -> dict[str, list[str]]:
    """By job, the words about what has grown."""
    return {role.job_id: [one.words for one in look.causes[role]] for role in look.slow}


@needs_promtool
def test_a_job_beside_its_own_best_hours(watched: Watched) -> None:
    """After three hours with 6 steps a minute 4: what a step takes then goes from 10 to 15 s."""
    jobs = Jobs()
    later = lambda before, after: lambda minute: before if minute < 180 else after  # noqa: E731
    slower = later(6, 4)
    day = range(260)
    jobs.add("1", day, slower, {"work/train": later(48, 32), "waiting/train": later(12, 28)})
    jobs.add("2", day, slower, {"work/train": later(40, 26.7), "work/rollout": later(20, 33.3)})
    jobs.add("3", day, slower, {"work/train": later(30, 30), "work/rollout": later(30, 30)})
    jobs.add("4", day, lambda minute: minute % 12 == 0, {"work/train": lambda minute: 60})
    jobs.add("5", day, slower, {"work/train": later(60, 60)})
    rank = {"cluster": "c", "node": "n1", "job_id": "5", "role": "train", "rank": 0}
    jobs.given[series("rank:rl_slow:ratio", **rank)] = "_x180 1.4x80"
    early, late = watched(jobs, [200, 250])
    assert told(early) == {}
    assert told(late) == {
        "1": ["Waiting in collectives makes up %s of the growth."],
        "2": ["Work in rollout makes up %s of the growth."],
        "3": [],
    }
    assert [round(one.ratio, 2) for one in late.slow.values()] == [1.5, 1.5, 1.5]


@needs_promtool
def test_a_job_beside_earlier_runs_of_its_kind(watched: Watched) -> None:
    """Runs 1 to 3 take 10 s a step, and 4 takes 15 s from its start, as it waits for data; 5 is as
    slow, and of another name."""
    jobs = Jobs()
    for job_id in "123":
        parts = {"work/train": lambda m: 50, "waiting/train": lambda m: 10, "data": lambda m: 5}
        jobs.add(job_id, range(90), lambda minute: 6, parts, "sft")
    for job_id, name in (("4", "sft"), ("5", "grpo")):
        parts = {"work/train": lambda m: 53, "waiting/train": lambda m: 7, "data": lambda m: 24}
        jobs.add(job_id, range(120, 200), lambda minute: 4, parts, name)
    (look,) = watched(jobs, [190])
    assert told(look) == {"4": ["Waiting for data makes up %s of the growth."]}
    assert [one.beside for one in look.slow.values()] == ["earlier_runs"]


@needs_promtool
def test_what_a_job_was_before_it_was_put_back_into_the_queue_is_no_earlier_run(
    watched: Watched,
) -> None:
    jobs = Jobs()
    parts = {"work/train": lambda minute: 60.0}
    for job_id in "123":
        jobs.add(job_id, range(90), lambda minute: 6, parts, "sft")
    again = Jobs()
    again.add("3", range(150, 260), lambda minute: 4, parts, "sft")
    for name, values in again.given.items():
        rest = values.partition(" ")[2]
        jobs.given[name] += f" _x60 {rest}"
    (look,) = watched(jobs, [250])
    assert [one.beside for one in look.slow.values()] == ["best_hours"]
    assert {beside for _, beside in look.references} == {"best_hours"}
