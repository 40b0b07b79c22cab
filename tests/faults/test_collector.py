"""Open faults as metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples
from stagewatch.faults.collector import ACTIVE, HOLD_SECONDS, START, FaultsCollector
from stagewatch.faults.markers import Marker, close_marker, write_marker
from tests.fake_clock import Clock
from tests.golden import assert_golden

NOW = 1_732_458_600.0
FAULT = Marker(
    id="cpu-1",
    fault_type="cpu_contention",
    start=NOW,
    target_worker="rollout_worker_8",
    expected_failure_stage="train",
    scenario="S1.2",
)


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def collector(tmp_path: Path, clock: Clock) -> FaultsCollector:
    return FaultsCollector(tmp_path, wall=clock)


def ids(found: Samples) -> set[str]:
    return {labels[0] for labels in found.families.get(ACTIVE, {})}


def test_the_whole_exposition(collector: FaultsCollector, tmp_path: Path) -> None:
    write_marker(tmp_path, FAULT)
    write_marker(tmp_path, Marker(id="net-2", fault_type="network_delay", start=NOW - 60))
    (tmp_path / "broken.json").write_text("{")
    assert_golden(collector.collect(), "faults.prom")


def test_a_fault_is_shown_while_it_is_open(
    collector: FaultsCollector, clock: Clock, tmp_path: Path
) -> None:
    write_marker(tmp_path, FAULT)
    clock.now = NOW - 1
    assert ids(collector.collect()) == set()
    clock.now = NOW + 10 * HOLD_SECONDS
    assert collector.collect().value(START, "cpu-1") == NOW
    close_marker(tmp_path, FAULT, NOW + 11 * HOLD_SECONDS)
    assert ids(collector.collect()) == {"cpu-1"}
    clock.now = NOW + 11 * HOLD_SECONDS
    assert ids(collector.collect()) == set()


def test_without_the_directory_there_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(NoData):
        FaultsCollector(tmp_path / "absent").collect()


def test_a_fault_shorter_than_a_scrape_is_not_lost(
    collector: FaultsCollector, clock: Clock, tmp_path: Path
) -> None:
    close_marker(tmp_path, FAULT, NOW + 0.2)
    clock.now = NOW + HOLD_SECONDS - 0.1
    assert ids(collector.collect()) == {"cpu-1"}
    clock.now = NOW + HOLD_SECONDS
    assert ids(collector.collect()) == set()
