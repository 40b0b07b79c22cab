"""Slow ranks and jobs as the judge's series."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stagewatch.core.collector import NoOptions
from stagewatch.core.errors import ConfigError, SourceError
from stagewatch.core.exposition import render
from stagewatch.judgement import slow_watch
from stagewatch.judgement.collector import SPEC as JOBS_SPEC
from stagewatch.judgement.collector import JudgeContext, JudgeOptions
from stagewatch.judgement.slow import Node, Rank, Role, Turn
from stagewatch.judgement.slow_jobs import Cause, JobsLook, JobsWatch, Slow
from stagewatch.judgement.slowness import SPEC, samples
from stagewatch.prometheus.api import Series

RANK = Rank("c", "n2", "7", "train", "3")
ROLE = RANK.role_key
BESIDE = slow_watch.ShownWitness(
    "core_wait", "", "Its threads wait for a core %s of the time.", 0.3
)
NOW = 10_000.0


def test_what_two_looks_have_shown_is_exported() -> None:
    ranks = slow_watch.SlowLook(
        {RANK: slow_watch.SlowRank(1.2, 9880.0, 0.16, 0.5, (BESIDE,))},
        {Node("c", "n2", "7", "train"): 1.2},
        {Role("c", "8", "train"): 4},
        {Role("c", "8", "train"): Turn(0.3, 4)},
    )
    jobs = JobsLook(
        {ROLE: Slow(1.5, "best_hours", 5.0)},
        {ROLE: [Cause("work", "rollout", 1.0)]},
        {ROLE: {("rollout", "work"): 5.0}},
        {(ROLE, "best_hours"): 10.0},
    )
    text = render(samples(ranks, jobs)).decode()
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'rl_rank_slow_ratio{cluster="c",node="n2",job_id="7",role="train",rank="3"} 1.2',
        'rl_rank_slow_since_timestamp_seconds{cluster="c",node="n2",job_id="7",role="train",'
        'rank="3"} 9880.0',
        'rl_rank_slow_cost_ratio{cluster="c",node="n2",job_id="7",role="train",rank="3"} 0.16',
        'rl_rank_slow_cost_seconds_per_step{cluster="c",node="n2",job_id="7",role="train",'
        'rank="3"} 0.5',
        'rl_rank_slow_witness{cluster="c",node="n2",job_id="7",role="train",rank="3",'
        'witness="core_wait",words="Its threads wait for a core %s of the time."} 0.3',
        'rl_node_slow_ratio{cluster="c",node="n2",job_id="7",role="train"} 1.2',
        'rl_job_slowness_rotates{cluster="c",job_id="8",role="train"} 4',
        'rl_job_slowness_turn_ratio{cluster="c",job_id="8",role="train"} 0.3',
        'rl_job_step_reference_seconds{cluster="c",job_id="7",role="train",beside="best_hours"} '
        "10.0",
        'rl_job_slow_ratio{cluster="c",job_id="7",role="train",beside="best_hours"} 1.5',
        'rl_job_slow_lost_seconds{cluster="c",job_id="7",role="train",stage="rollout",part="work",'
        'beside="best_hours"} 5.0',
        'rl_job_slow_cause_share{cluster="c",job_id="7",role="train",stage="rollout",cause="work",'
        'beside="best_hours",words="Work in rollout makes up %s of the growth."} 1.0',
    ]


class Answers:
    """A server on which rank 3 has stood out for long, of steps without numbers."""

    def __init__(self, fails: Callable[[str, float], bool] = lambda expression, at: False) -> None:
        self.asked: list[tuple[str, float]] = []
        self._fails = fails

    def query(self, expression: str, at: float | None = None) -> list[Series]:
        """What the rules have of it; `fails` says what is not answered."""
        assert at is not None
        self.asked.append((expression, at))
        if self._fails(expression, at):
            raise SourceError("no answer")
        labels = dict(zip(Rank._fields, RANK, strict=True))
        values = {
            slow_watch.STANDS_OUT: 0.16,
            slow_watch.LASTING: 0.2,
            "rl_rank_slow_since_timestamp_seconds": 5000.0,
            "rl_rank_run_queue_seconds_total": 0.3,
            "count_over_time(rank:rl_own_work_excess": 40.0,
            "rank:rl_own_work_excess:ratio": 0.2,
        }
        for part, value in values.items():
            if part in expression and "stddev" not in expression and "deriv" not in expression:
                return [Series(labels, value)]
        return []


def test_a_judge_that_is_started_knows_since_when_a_rank_is_slow() -> None:
    (one,) = slow_watch.SlowWatch(Answers()).look(NOW).ranks.values()
    assert (one.ratio, one.since) == (1.2, 5000.0)
    assert [each.witness for each in one.witnesses] == ["core_wait"]


def test_witnesses_that_are_not_answered_take_no_name_away() -> None:
    api = Answers(fails=lambda expression, at: "run_queue" in expression)
    (one,) = slow_watch.SlowWatch(api).look(NOW).ranks.values()
    assert one.witnesses == ()


def test_witnesses_are_asked_for_once_a_minute() -> None:
    api = Answers()
    watch = slow_watch.SlowWatch(api)
    for look in range(9):
        watch.look(NOW + 15 * look)
    asked = [at - NOW for expression, at in api.asked if "rl_rank_run_queue" in expression]
    assert asked == [0, 60, 120]


def test_looks_that_were_missed_are_made_up_for() -> None:
    api = Answers(fails=lambda expression, at: NOW < at < NOW + 70 and at != NOW + 15)
    watch = slow_watch.SlowWatch(api)
    watch.look(NOW)
    watch.look(NOW + 15)
    for at in (NOW + 30, NOW + 45):
        with pytest.raises(SourceError):
            watch.look(at)
    api._fails = lambda expression, at: False
    api.asked.clear()
    watch.look(NOW + 75)
    asked = [at - NOW for expression, at in api.asked if expression == slow_watch.STANDS_OUT]
    assert asked == [30, 45, 60, 75]


def test_after_a_long_silence_only_ten_minutes_are_gone_through() -> None:
    api = Answers()
    slow_watch.SlowWatch(api).look(NOW)
    times = [at for expression, at in api.asked if expression == slow_watch.STANDS_OUT]
    assert (len(times), times[0], times[-1]) == (40, NOW - 585, NOW)


def test_jobs_are_looked_at_once_a_minute() -> None:
    api = Answers()
    watch = JobsWatch(api)
    for look in range(9):
        watch.look(NOW + 15 * look)
    asked = [at - NOW for expression, at in api.asked if expression == "job_role:rl_kind:info"]
    assert asked == [0, 60, 120]


def test_it_asks_the_server_that_the_collector_of_jobs_is_told_of() -> None:
    context = JudgeContext(JudgeOptions())
    with pytest.raises(ConfigError, match="run both"):
        SPEC.build(NoOptions(), context)
    JOBS_SPEC.build(JOBS_SPEC.options(url="http://127.0.0.1:9"), context).close()
    collector = SPEC.build(NoOptions(), context)
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:9"):
        collector.collect()
    collector.close()
