"""Ranges of rules hold samples, whether their beginning counts (Prometheus 2) or not (3)."""

from __future__ import annotations

from collections import defaultdict

from tests.alerts.promtool import seconds
from tests.alerts.rule_files import Rule, every_rule

SLOWEST = 15.0
"""Seconds between two scrapes, and two evaluations of a group without an interval of its own, that
docs/tuning.md allows."""
THIS_EVALUATION = 1.0
"""Seconds: with this range a rule reads what its own group has just recorded, and nothing older."""


def test_a_range_holds_two_samples_at_least() -> None:
    """One whose length is the interval holds one, or none after a late scrape or evaluation."""
    intervals = recording_intervals()
    short = {
        (rule.file, rule.name, name, length)
        for rule in every_rule()
        for name, lengths in rule.ranges.items()
        for length in lengths
        if length < 2 * intervals.get(name, SLOWEST)
        if not (length == THIS_EVALUATION and name in recorded_before(rule))
    }
    assert short == set()


def recording_intervals() -> dict[str, float]:
    """The seconds from one sample of a recorded series to the next, by the slowest group."""
    intervals: dict[str, float] = defaultdict(float)
    for rule in every_rule():
        if rule.records:
            intervals[rule.name] = max(intervals[rule.name], interval_of(rule))
    return intervals


def interval_of(rule: Rule) -> float:
    """The seconds from one evaluation to the next."""
    return seconds(rule.interval) if rule.interval else SLOWEST


def recorded_before(rule: Rule) -> set[str]:
    """The series that the rule's group records before it, at the same moment."""
    return {
        other.name
        for other in every_rule()
        if (other.file, other.group) == (rule.file, rule.group)
        if other.records and other.position < rule.position
    }
