"""The replay of healthy days: it sees what it must, and loses nothing by looking away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alerts.promtool import needs_promtool
from tests.bench import replay_jobs
from tests.bench.bench_replay import replay, report
from tests.bench.replay_jobs import Pause, Shape, Work, script
from tests.bench.replay_judge import NAMED, PAGED, SUSPECTED, Judges
from tests.bench.replay_series import GRID, Job
from tests.hangbench.rates import poisson_bounds

STEP = (Work(2),)
HOUR = 1 / 24
COUNTED = tuple[str, float, str]


def seen(shape: Shape, folder: Path, *, always: bool = False) -> tuple[set[COUNTED], int]:
    """What the judge says of an hour of a job, with its time and evidence, and how often it is
    looked at."""
    judges = Judges((GRID,))
    job = Job("a-job", folder, HOUR, judges.see, always=always)
    job.live(script(shape, job))
    return {(one.what, one.begin, one.evidence) for one in judges.watched[0].episodes}, job.looks


def test_nothing_is_lost_by_looking_away(tmp_path: Path) -> None:
    pauses = (
        Pause("validates", 45, 0.1, "gpu", every=500),
        Pause("suspended", 90, 0.1, "stopped", every=1200),
        Pause("rank 0 evaluates", 45, 0.1, "gpu", every=300, who="first"),
        Pause("a batch is late", 12, 0.5, "waits for storage", every=200, who="one"),
    )
    shape = Shape("", STEP, pauses, restarts_a_day=36, down=60)
    found, looks = seen(shape, tmp_path)
    always, all_looks = seen(shape, tmp_path, always=True)
    assert found == always
    assert {what for what, *_ in found} >= {SUSPECTED, NAMED}
    assert all_looks == 3600 / GRID
    assert looks < all_looks / 3


def test_a_hang_is_paged_for(tmp_path: Path) -> None:
    hang = Pause("hangs", 1200, 0.0, "gpu", every=1500)
    found, _ = seen(Shape("", STEP, (hang,)), tmp_path)
    assert {what for what, *_ in found} == {SUSPECTED, PAGED}


def test_whoever_alone_hangs_is_named(tmp_path: Path) -> None:
    hang = Pause("hangs", 1200, 0.0, "asleep", every=1500, who="first")
    found, _ = seen(Shape("", STEP, (hang,)), tmp_path)
    assert {(what, evidence) for what, _, evidence in found} >= {(NAMED, "awaited")}


def test_a_job_of_even_steps_raises_nothing(tmp_path: Path) -> None:
    found, looks = seen(Shape("", (Work(12),)), tmp_path)
    assert not found
    assert looks < 20


def test_an_undeclared_evaluation_is_suspected_once(tmp_path: Path) -> None:
    """As docs/tuning.md says; one rank evaluates, and the others wait in a collective."""
    pause = Pause("rank 0 evaluates", 45, 0.1, "gpu", every=300, who="first")
    found, _ = seen(Shape("", STEP, (pause,)), tmp_path, always=True)
    assert [what for what, *_ in found if what == SUSPECTED] == [SUSPECTED]


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
    assert [one.what for _, one in done.seen[15]] == ["Third"]
    assert done.count(15, "Third") == 1


def test_a_report_tells_each_page_with_what_the_job_did(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = Pause("hangs", 1200, 0.0, "gpu", every=1500)
    monkeypatch.setitem(replay_jobs.SHAPES, "hung", Shape("", STEP, (hang,)))
    text = report(replay(("hung", 0), HOUR, (5, 15)))
    assert "| hung | 0.0416667 | 1 | 0 | 1 | 2 × hangs (gpu) |" in text
    assert "| `paged` | 15 s | hung-0 |" in text
