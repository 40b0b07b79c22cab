"""Who is a lemon, and by what: exact intervals, and fleets drawn by published rates."""

from __future__ import annotations

import random

import pytest

from stagewatch.lemons.intervals import fewer, mean_between
from stagewatch.lemons.ledger import Event, Unit, joined, make_ledger
from tests.bench.bench_lemons import RATES, first_days

HOUR, DAY = 3600.0, 86400.0


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # R: poisson.test(k)$conf.int; Garwood's table of 1936 has the same.
    [(0, 0, 3.6889), (1, 0.02532, 5.5716), (5, 1.6235, 11.6683), (100, 81.3639, 121.6271)],
)
def test_intervals_are_those_of_the_tables(count: int, low: float, high: float) -> None:
    assert mean_between(count, 0.025) == pytest.approx((low, high), rel=1e-4, abs=1e-9)


def test_an_interval_covers_what_it_should() -> None:
    """Exact: never fewer than promised, whatever the mean."""
    for mean in (0.3, 2.0, 7.5):
        low_high = [mean_between(count, 0.025) for count in range(60)]
        chance = [fewer(count + 1, mean) - fewer(count, mean) for count in range(60)]
        outside = sum(
            share
            for share, (low, high) in zip(chance, low_high, strict=True)
            if not low <= mean <= high
        )
        assert outside <= 0.05


def unit(number: int) -> Unit:
    return Unit("east", f"n{number:02}")


def event(number: int, day: float, kind: str = "named", seconds: float = 600.0) -> Event:
    return Event(kind, unit(number), day * DAY, day * DAY + seconds, "540")


def test_what_befalls_a_node_within_a_day_is_one_interruption() -> None:
    day = [event(0, 1), event(0, 1.3, "xid"), event(0, 1.9, "out")]
    assert joined(day) == 1
    assert joined([*day, event(0, 2.1)]) == 2
    assert joined([event(0, 1, "out", 3 * DAY), event(0, 3), event(0, 4.5)]) == 2
    assert joined(event(0, at / 4) for at in range(400)) > 75, "and a chain of them is not one"


def test_few_interruptions_accuse_nobody_and_many_on_one_node_do() -> None:
    hours = {unit(number): 720.0 for number in range(63)}
    few = [event(3, day) for day in (1, 5, 9)] + [event(20 + at, at) for at in range(8)]
    assert not make_ledger(hours, few).lemons
    many = [*few, *(event(3, day) for day in (12, 15, 19))]
    (lemon,) = make_ledger(hours, many).lemons
    assert (lemon.unit, lemon.interruptions, lemon.kinds["named"]) == (unit(3), 6, 6)


def test_a_busy_node_is_held_against_its_hours() -> None:
    """Nine interruptions of a node that jobs have all the time, where others are mostly idle."""
    hours = {unit(number): 2000.0 if number == 3 else 100.0 for number in range(63)}
    events = [event(3, 2 * day) for day in range(9)] + [event(10 + at, at) for at in range(24)]
    assert not make_ledger(hours, events).lemons
    assert make_ledger(dict.fromkeys(hours, 2000.0), events).lemons


def test_a_node_that_no_job_had_is_told_and_no_lemon() -> None:
    events = [event(9, day, "out") for day in range(1, 20)]
    made = make_ledger({unit(number): 720.0 for number in range(5)}, events)
    row = next(row for row in made.rows if row.unit == unit(9))
    assert (row.kinds["out"], row.lemon, made.interruptions) == (19, False, 0)


def test_lemons_drawn_by_published_rates_are_told_and_hardly_a_good_node() -> None:
    """`make bench ARGS=lemons` draws many more."""
    days = first_days(random.Random(0), RATES["Delta, GSP"], 3, 90, False)
    assert sorted(days) == [0, 1, 2]
