"""How soon lemons are told, and how many good nodes accused, in fleets drawn by published rates.

Three of 63 nodes account for half of all interruptions (Lablup, arXiv 2605.09370: three of 63 nodes
for more than half of the exclusions); how many there are in all is as in the fleets of `RATES`.
Somebody looks once a day.  `--fleets N` draws more of each.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence

from stagewatch.lemons.ledger import Event, Unit, make_ledger
from tests.bench.table import percentile

DAY = 86400.0
NODES, LEMONS, DAYS = 63, 3, 180

RATES = {
    # 419 interruptions in 54 days of 16,384 GPUs, eight a node: arXiv 2407.21783.
    "Llama 3": 419 / (54 * 16384 / 8),
    # 10 failures of GPUs told by an XID, in 55 days of 63 nodes: arXiv 2605.09370.
    "Lablup, XIDs": 10 / (55 * 63),
    # 3,857 time-outs of the GSP, which take a reboot, in 895 days of 106 nodes with A100s:
    # arXiv 2503.11901v4.
    "Delta, GSP": 3857 / (895 * 106),
}
"""Interruptions of a node in a day."""

FOLLOWS, WITHIN_DAYS = 0.3, 2.0
"""In a fleet of bursts, how often an interruption has another as its consequence, and how soon."""


def main(arguments: Sequence[str] = ()) -> None:
    """Draw the fleets, and tell."""
    parser = argparse.ArgumentParser(prog="bench lemons")
    parser.add_argument("--fleets", type=int, default=200, metavar="N", help="of each kind")
    fleets: int = parser.parse_args(arguments).fleets
    print(
        f"{fleets} fleets of {NODES} nodes for {DAYS} days each; a lemon is told in days (median, "
        "90 %)\nand of all lemons by the end; accused: good nodes in a fleet, on the last day and "
        "ever\n"
    )
    for source, rate in RATES.items():
        for lemons in (LEMONS, 0):
            for since in (30, 90):
                for bursts in (False, True):
                    _measure(source, rate, lemons, since, bursts, fleets)


def _measure(source: str, rate: float, lemons: int, since: int, bursts: bool, fleets: int) -> None:
    told: list[int] = []
    last = ever = 0
    for seed in range(fleets):
        days = first_days(random.Random(seed), rate, lemons, since, bursts)
        told += [days[node][0] for node in range(lemons) if node in days]
        accused = [looks for node, looks in days.items() if node >= lemons]
        ever += len(accused)
        last += sum(looks[-1] == DAYS for looks in accused)
    what = f"{source}, {lemons} lemons, --since {since}d{', in bursts' if bursts else ''}"
    share = f"{len(told) / (lemons * fleets):5.0%}" if lemons else "    –"
    soon = f"{percentile(told, 0.5):4} {percentile(told, 0.9):4}" if told else "   –    –"
    print(f"{what:<44} told {soon} {share}  accused {last / fleets:.3f} {ever / fleets:.3f}")


def first_days(
    draw: random.Random, rate: float, lemons: int, since: int, bursts: bool
) -> dict[int, list[int]]:
    """The days at whose end each node was called a lemon; the first `lemons` of them are."""
    whole = rate * NODES
    each = [
        whole / 2 / lemons if node < lemons else whole / 2 / (NODES - lemons) if lemons else rate
        for node in range(NODES)
    ]
    units = {Unit("east", f"node-{node:02}"): node for node in range(NODES)}
    events = [
        Event("named", unit, when, when + 600)
        for unit, node in units.items()
        for when in _times(draw, each[node], bursts)
    ]
    found: dict[int, list[int]] = {}
    for day in range(1, DAYS + 1):
        start, end = max(0, day - since) * DAY, day * DAY
        hours = dict.fromkeys(units, (end - start) / 3600)
        seen = [event for event in events if start <= event.start < end]
        for row in make_ledger(hours, seen).lemons:
            found.setdefault(units[row.unit], []).append(day)
    return found


def _times(draw: random.Random, rate: float, bursts: bool) -> Iterator[float]:
    """When a node is interrupted, seconds; in bursts the rate in all is the same."""
    when = 0.0
    while (when := when + draw.expovariate(rate * (1 - FOLLOWS if bursts else 1))) < DAYS:
        yield when * DAY
        again = when
        while bursts and draw.random() < FOLLOWS:
            again += draw.expovariate(1 / WITHIN_DAYS)
            if again < DAYS:
                yield again * DAY
