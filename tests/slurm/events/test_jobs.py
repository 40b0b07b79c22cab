"""Every run is counted once, whoever tells of it first and however often."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from stagewatch.slurm.events.jobs import OVERLAP, JobLedger
from stagewatch.slurm.model import EndedJob, Job
from tests.slurm.ledger_scene import T, job, record

STATES = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")


def test_queue_and_accounting_tell_of_the_same_run_once() -> None:
    """In either order, and again and again."""
    for first in ("queue", "accounting"):
        ledger = JobLedger(T)
        for who in (first, "queue", "accounting", "queue", "accounting"):
            if who == "queue":
                ledger.observe_queue([job(state="COMPLETED")], T + 110)
            else:
                ledger.observe_accounting([record()], asked=T + 110, complete=True)
        assert ledger.ended == {("gpu", "COMPLETED"): 1}
        assert ledger.run["gpu"].exposed().count == 1


def test_vanished_job_is_unknown_until_accounting_tells() -> None:
    """Never failed; and the time it vanished is asked for until it comes."""
    ledger = JobLedger(T)
    ledger.observe_queue([job()], T + 50)
    ledger.observe_queue([], T + 100)
    for hour in range(1, 5):
        ledger.observe_accounting([], asked=T + hour * 3600, complete=True)
        assert ledger.unaccounted == 1
        assert ledger.window_start <= T + 50
    assert not ledger.ended
    ledger.observe_accounting([record(state="TIMEOUT")], asked=T + 5 * 3600, complete=True)
    assert (ledger.unaccounted, ledger.ended) == (0, {("gpu", "TIMEOUT"): 1})
    assert ledger.window_start == T + 5 * 3600 - OVERLAP


def test_requeued_job_has_two_runs() -> None:
    """The first ended with its node, the second as it should."""
    ledger = JobLedger(T)
    ledger.observe_queue([job()], T + 20)
    again = job(submit=T + 40, state="PENDING", restarts=1, start=None, end=None)
    ledger.observe_queue([again], T + 50)
    assert (ledger.requeues, ledger.unaccounted) == ({"gpu": 1}, 1)
    ledger.observe_accounting([record(state="NODE_FAIL", end=T + 40)], asked=T + 60, complete=True)
    ledger.observe_queue([replace(again, state="COMPLETED", end=T + 90)], T + 100)
    assert ledger.ended == {("gpu", "NODE_FAIL"): 1, ("gpu", "COMPLETED"): 1}
    assert ledger.unaccounted == 0


def test_without_accounting_a_requeued_run_is_known_and_a_vanished_one_is_not() -> None:
    """The new run's submit time tells the one from the other."""
    ledger = JobLedger(T)
    ledger.no_accounting(T)
    ledger.observe_queue([job(1), job(2)], T + 20)
    ledger.observe_queue([job(1, submit=T + 30, restarts=1)], T + 40)
    assert ledger.ended == {("gpu", "REQUEUED"): 1, ("gpu", "UNKNOWN"): 1}
    assert ledger.accounting is False


def test_restarts_from_before_the_agent_do_not_count_and_later_ones_do() -> None:
    """Several requeues between two looks are several."""
    ledger = JobLedger(T)
    ledger.observe_queue([job(restarts=5)], T + 1)
    assert not ledger.requeues
    ledger.observe_queue([job(restarts=8, submit=T + 10), job(2, restarts=1)], T + 20)
    assert ledger.requeues == {"gpu": 4}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[EndedJob], list[tuple[str, list[int]]]]:
    """Runs that ended, and looks: which of them the queue or accounting told about each time."""
    runs = [
        record(
            number,
            draw(st.sampled_from(STATES)),
            partition=draw(st.sampled_from(["gpu", "cpu"])),
            submit=T + draw(st.integers(0, 50)),
            end=T + draw(st.integers(2600, 3000)),
        )
        for number in range(draw(st.integers(1, 8)))
    ]
    indices = st.lists(st.integers(0, len(runs) - 1), max_size=len(runs))
    source = st.sampled_from(["live", "ended", "accounting", "restart"])
    return runs, draw(st.lists(st.tuples(source, indices), max_size=12))


@given(histories())
@settings(max_examples=300)
def test_every_run_is_counted_exactly_once_in_the_end(
    history: tuple[list[EndedJob], list[tuple[str, list[int]]]],
) -> None:
    """In whatever order, with repetitions, late records and restarts of the agent."""
    runs, looks = history
    ledger = JobLedger(T)
    now = T + 3000.0
    previous: Counter[tuple[str, str]] = Counter()
    for kind, chosen in [*looks, ("accounting", list(range(len(runs))))]:
        now += 15
        told = [runs[index] for index in sorted(set(chosen))]
        if kind == "accounting":
            ledger.observe_accounting(told, asked=now, complete=True)
        elif kind == "restart":
            ledger = JobLedger.load(json.loads(json.dumps(ledger.dump())))
        else:
            ledger.observe_queue([_as_queue_shows(run, kind) for run in told], now)
        assert all(ledger.ended[key] >= number for key, number in previous.items())
        previous = Counter(ledger.ended)
    assert ledger.ended == Counter((run.partition, run.state) for run in runs)
    assert ledger.unaccounted == 0


def _as_queue_shows(run: EndedJob, kind: str) -> Job:
    return job(
        run.job_id,
        run.state if kind == "ended" else "RUNNING",
        partitions=(run.partition,),
        submit=run.submit,
        end=run.end,
    )
