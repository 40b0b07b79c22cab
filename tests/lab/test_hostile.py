"""What a user writes into a record cannot flood, break or fool what is made of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.ranks.stages import MAX_NAMES
from tests.lab.lab import Lab

RANKS = 4
SERIES = RANKS * (3 * (MAX_NAMES + 1) + 100)
"""Scalars, groups and open stages may each have so many names, beside what every rank has."""

pytestmark = [
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus on the PATH"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def small_lab(tmp_path: Path) -> Iterator[Lab]:
    """One node."""
    with Lab(tmp_path, 1, "--collector.stages.interval=100ms") as lab:
        yield lab


def test_ten_thousand_names_do_not_flood_prometheus(small_lab: Lab) -> None:
    healthy = small_lab.job("healthy", 2)
    small_lab.job("hostile", RANKS, program="tests.lab.hostile_rank", role='"}\n\udcff\\')
    hostile = 'job_id="hostile"'
    folded = "stagewatch_names_folded_total"
    small_lab.wait(
        lambda: (
            {found.labels["kind"] for found in small_lab.api.query(folded)}
            == {"substage", "scalar", "group"}
        ),
        "names are left out, and counted",
    )
    small_lab.wait(healthy.armed, "the healthy job's budget is known")

    def dropped() -> list[float]:
        found = small_lab.api.query(f"stagewatch_record_entries_dropped{{{hostile}}}")
        return [series.value for series in found]

    small_lab.wait(lambda: min(dropped(), default=0) > 1000, "every rank had its names dropped")
    ever = small_lab.api.query(f'count(last_over_time({{{hostile}, __name__=~"rl_.*"}}[10m]))')
    assert ever[0].value < SERIES
    assert not small_lab.api.query(f"rl_scalar{{{hostile}}} > 1e308")
    assert not small_lab.api.query("min_over_time(up[10m]) == 0")
    assert not small_lab.api.query("min_over_time(stagewatch_collector_success[1m]) == 0")
    ages = small_lab.api.query(f"rl_rank_progress_age_seconds{{{hostile}}} < 0")
    assert not ages, "a clock that jumps forward makes no negative age"
    assert healthy.query("rl_rank_step")
