"""The report on paid GPU-hours, from real servers, against a count of its own."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.cli import main
from stagewatch.core.processes import Children
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report import story
from stagewatch.report.goodput import Asked, Goodput, GoodputOptions, make_goodput
from stagewatch.report.ledger import DAY, NOT_OBSERVED
from stagewatch.report.periods import month
from tests.report import paid as past
from tests.report.filled import filled_store

OCTOBER = month("2026-10")
PRICES = (("h100", 3.0), ("a100", 1.0))


def made(url: str) -> Goodput:
    """What a server knows of October."""
    options = GoodputOptions(price=PRICES, currency="EUR")
    asked = Asked(options, OCTOBER, "October 2026", "In October 2026")
    with closing(PrometheusApi(url, timeout=60)) as api:
        return make_goodput(api, asked)


@pytest.fixture(scope="module")
def goodput(paid_url: str) -> Goodput:
    """October's report."""
    return made(paid_url)


def counted() -> Counter[tuple[str, str]]:
    """GPU-seconds by job (or `outside`) and state: each evaluation stands for a minute."""
    seconds: Counter[tuple[str, str]] = Counter()
    for when in past.evaluations():
        for job_id, *_ in past.owners():
            for state, gpus in past.uses(job_id, when).items():
                seconds[job_id, state] += past.STEP * gpus  # type: ignore[assignment]
        for (_, state), gpus in past.outside(when).items():
            seconds["outside", state] += past.STEP * gpus  # type: ignore[assignment]
    return seconds


def test_every_gpu_second_is_in_the_state_that_an_independent_count_has(goodput: Goodput) -> None:
    expected = counted()
    found: Counter[tuple[str, str]] = Counter()
    for key, seconds in goodput.ledger.rows.items():
        if key.state != NOT_OBSERVED:
            found[key.job_id or "outside", key.state] += seconds  # type: ignore[assignment]
    for job, lost in (("101", past.AT_RISK), ("104", past.AT_RISK_CRASHED)):
        states = ("train", "rollout")
        moved = sum(expected[job, state] - found[job, state] for state in states)
        assert found[job, "lost"] == pytest.approx(lost)
        assert moved == pytest.approx(lost)
        for state in (*states, "lost"):
            del found[job, state], expected[job, state]
    assert found == pytest.approx(expected)


def test_all_states_and_the_time_not_observed_are_all_that_was_paid_for(goodput: Goodput) -> None:
    assert goodput.total.seconds == pytest.approx(24 * 31 * DAY)
    seen = past.END - past.T - (past.GAP[1] - past.GAP[0])
    assert goodput.total.observed == pytest.approx(24 * seen)
    assert goodput.clusters[0].gpus == pytest.approx(24)
    assert goodput.clusters[0].share == pytest.approx(seen / (31 * DAY))


def test_a_gap_is_on_its_day_and_in_no_state(goodput: Goodput) -> None:
    unseen = {
        key.start: seconds
        for key, seconds in goodput.ledger.rows.items()
        if key.state == NOT_OBSERVED
    }
    assert len(unseen) == 30  # the 5th was observed all day
    assert unseen[past.T + DAY] == pytest.approx(24 * 1.5 * 3600)
    assert unseen[OCTOBER.start] == pytest.approx(24 * DAY)


def test_a_failure_costs_lost_work_the_queue_and_the_start(goodput: Goodput) -> None:
    requeued, crashed = goodput.attempts
    assert (requeued.job_id, requeued.ended, requeued.lost) == ("101", past.REQUEUED, past.AT_RISK)
    assert requeued.queued == past.AGAIN - past.REQUEUED
    assert requeued.startup == pytest.approx(8 * 900)  # waiting and init
    assert (crashed.job_id, crashed.how, crashed.ended) == ("104", "JobStalled", past.CRASHED)
    assert crashed.lost == past.AT_RISK_CRASHED


def test_training_ratio_counts_the_queue_and_goodput_does_not(goodput: Goodput) -> None:
    job = goodput.tables["job"]["east/101"]
    expected = counted()
    states = {state: n for (job_id, state), n in expected.items() if job_id == "101"}
    productive = states["train"] + states["rollout"] - past.AT_RISK
    assert job.goodput == pytest.approx(productive / sum(states.values()))
    off = 8 * (past.AGAIN - past.REQUEUED)
    assert job.training_ratio == pytest.approx(productive / (sum(states.values()) + off))
    assert goodput.tables["job"]["east/102"].goodput is None  # nobody recorded its stages


def test_money_is_hours_times_the_price_of_the_model(goodput: Goodput) -> None:
    expected = counted()
    held = sum(n for (job, _), n in expected.items() if job == "102")
    assert goodput.tables["model"]["a100"].cost == pytest.approx(held / 3600 * 1.0)
    held = sum(n for (job, _), n in expected.items() if job in ("101", "104"))
    assert goodput.tables["model"]["h100"].cost == pytest.approx(held / 3600 * 3.0)
    observed = goodput.total.observed / 3600
    assert goodput.total.cost == pytest.approx(observed * (16 * 3 + 8 * 1) / 24)
    assert goodput.unpriced == pytest.approx(goodput.total.seconds - goodput.total.observed)


def test_a_sentence_says_where_the_hours_went(goodput: Goodput) -> None:
    (first,) = story.goodput_opening(goodput)
    assert first.startswith("In October 2026 the 24 GPUs of cluster east were paid for 17,856 GPU")
    assert "93.8 % were not observed" in first


def test_victoriametrics_tells_the_same(
    goodput: Goodput, children: Children, tmp_path: Path
) -> None:
    theirs = made(filled_store(children, tmp_path / "v", past.paid()))
    assert theirs.total.states == pytest.approx(goodput.total.states)
    assert theirs.attempts == list(goodput.attempts)


def test_the_command_writes_long_forms_that_agree(paid_url: str, tmp_path: Path) -> None:
    given = ["report", "goodput", "--prometheus", paid_url, "--month", "2026-10"]
    given += ["--price", "h100=3,other=1.0", "--currency", "EUR", "--output", str(tmp_path / "o")]
    assert main(given) == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "o/report.csv").read_text())))
    hours = sum(float(row["gpu_hours"]) for row in rows)
    assert hours == pytest.approx(24 * 31 * 24)
    report = json.loads((tmp_path / "o/report.json").read_text())
    assert report["total"]["seconds"] / 3600 == pytest.approx(hours)
    assert report["total"]["cost"] == pytest.approx(sum(float(row["cost"]) for row in rows))
    assert report["attempts"][0]["lost"] == pytest.approx(past.AT_RISK)
