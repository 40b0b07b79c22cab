"""How much rules read of every rank of the cluster (`make bench ARGS=rules` has the seconds)."""

from __future__ import annotations

from tests.alerts.promtool import seconds
from tests.alerts.rule_files import every_rule

OFTEN = {"job:rl_cgroup_oom_kill:age_seconds": "beside a rank that is gone, it names the cause"}
"""Records that read minutes of every rank's samples at short intervals, and why."""


def test_minutes_of_every_rank_are_not_read_every_few_seconds() -> None:
    """At 1,024 nodes such a rule reads a hundred thousand samples, for what hardly moves."""
    often = {
        rule.name
        for rule in every_rule()
        for name, lengths in rule.ranges.items()
        if name.startswith(("rl_rank_", "rl_scalar")) and max(lengths) >= 300
        if seconds(rule.interval) < 30
    }
    assert often == OFTEN.keys()
