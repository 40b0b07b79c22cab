"""The replay of healthy days: it sees what it must, and loses nothing by its windows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.alerts.promtool import needs_promtool
from tests.bench import replay_jobs
from tests.bench.bench_replay import (
    SUSPICION,
    Episode,
    Replay,
    Task,
    evaluate,
    packs,
    replay,
    resume,
    windows,
)
from tests.bench.replay_jobs import Pause, Shape, Work
from tests.bench.replay_series import Columns, busy_buckets
from tests.hangbench.rates import poisson_bounds

STEP = (Work(2),)
HOUR = 1 / 24
COUNTED = tuple[str, float, str]


def seen(kind: str, *, whole: bool) -> tuple[set[COUNTED], int]:
    """Alerts of the rules on stalls with their time and evidence, and the seconds replayed."""
    made = windows((kind, 0), HOUR, (15,), whole=whole)
    found = [e for pack in packs(made) for e in evaluate(15, pack)]
    return {(e.alert, e.begin, e.evidence) for e in found}, sum(one.seconds for one in made)


@needs_promtool
def test_windows_show_what_the_whole_time_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = (
        Pause("validates", 45, 0.1, "gpu", every=500),
        Pause("suspended", 90, 0.1, "stopped", every=2400),
        Pause("rank 0 evaluates", 45, 0.1, "gpu", every=300, who="first"),
    )
    shape = Shape("", STEP, pauses, restarts_a_day=36, down=60)
    monkeypatch.setitem(replay_jobs.SHAPES, "mixed", shape)
    in_windows, part = seen("mixed", whole=False)
    always, day = seen("mixed", whole=True)
    assert in_windows == always
    assert {alert for alert, *_ in always} >= {SUSPICION, "JobStalled"}
    assert part < 0.9 * day


@needs_promtool
def test_a_hang_is_paged_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = Pause("hangs", 1200, 0.0, "gpu", every=1500)
    monkeypatch.setitem(replay_jobs.SHAPES, "hung", Shape("", STEP, (hang,)))
    alerts = {alert for alert, *_ in seen("hung", whole=False)[0]}
    assert alerts == {SUSPICION, "JobStalled"}


@needs_promtool
def test_a_job_of_even_steps_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(replay_jobs.SHAPES, "even", Shape("", (Work(12),)))
    found, seconds = seen("even", whole=True)
    assert not found
    assert seconds == 3600


@needs_promtool
def test_an_undeclared_evaluation_is_suspected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/tuning.md says; one rank evaluates, and the others wait in a collective."""
    pause = Pause("rank 0 evaluates", 45, 0.1, "gpu", every=300, who="first")
    monkeypatch.setitem(replay_jobs.SHAPES, "evaluates", Shape("", STEP, (pause,)))
    found, _ = seen("evaluates", whole=True)
    assert [alert for alert, *_ in sorted(found) if alert == SUSPICION] == [SUSPICION]


@pytest.mark.parametrize(
    ("count", "low", "high"), [(0, 0, 3.689), (1, 0.0253, 5.572), (10, 4.795, 18.39)]
)
def test_bounds_are_those_of_garwood(count: int, low: float, high: float) -> None:
    # F. Garwood, Biometrika 28 (1936); the table of 95 % limits for a Poisson mean.
    assert poisson_bounds(count, 1.0)[0] == pytest.approx(low, abs=1e-3)
    assert poisson_bounds(count, 1.0)[1] == pytest.approx(high, rel=1e-3)
    assert poisson_bounds(count, 2.0)[1] == pytest.approx(high / 2, rel=1e-3)


@needs_promtool
def test_other_rules_see_the_whole_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(replay_jobs.SHAPES, "steady", Shape("-", STEP))
    rules = tmp_path / "other.rules.yaml"
    rules.write_text(
        """
groups:
  - name: other
    rules:
      - alert: Third
        expr: rl_rank_info{rank="2"}
"""
    )
    done = replay(("steady", 0), HOUR, (15,), (rules,))
    assert done.seconds == 3600
    assert [one.alert for _, one in done.seen[15]] == ["Third"]
    assert done.count(15, "Third") == 1


def test_buckets_without_a_share_in_any_quantile_are_left_out() -> None:
    def bucket(rank: int, le: str) -> str:
        return f'gap_bucket{{rank="{rank}",stage="train",le="{le}"}}'

    counts = {"1": ["0", "0"], "2": ["0", "0"], "4": ["3", "3"], "8": ["3", "3"]}
    columns: Columns = {bucket(0, le): list(column) for le, column in counts.items()}
    columns |= {bucket(1, le): list(column) for le, column in counts.items()}
    for rank in (0, 1):
        columns |= {bucket(rank, le): ["3", "3"] for le in ("16", "32", "+Inf")}
    columns[bucket(1, "32")] = columns[bucket(1, "+Inf")] = ["3", "4"]  # one gap of 16 to 32
    columns['gap_count{rank="0"}'] = ["3", "3"]
    # Those that count something, and the bounds below them, of both ranks alike.
    wanted = ("2", "4", "16", "32", "+Inf")
    assert set(busy_buckets(columns)) == {
        *(bucket(0, le) for le in wanted),
        *(bucket(1, le) for le in wanted),
        'gap_count{rank="0"}',
    }


def test_results_that_a_file_holds_are_not_replayed_again(tmp_path: Path) -> None:
    played: list[Task] = []

    def one(task: Task) -> Replay:
        played.append(task)
        episode = Episode("even-0", SUSPICION, "record", 45.0, "", "an ordinary step")
        return Replay(Counter({task[0]: 1}), 60, {15: [(task[0], episode)]})

    results = tmp_path / "results"
    first = resume(results, one, ("even", 0), key="rules 1 15")
    assert resume(results, one, ("even", 0), key="rules 1 15") == first
    assert played == [("even", 0)]
    resume(results, one, ("even", 0), key="other 1 15")
    resume(results, one, ("even", 1), key="rules 1 15")
    assert len(played) == 3
