"""The table of the scenarios, from a report that was made."""

from __future__ import annotations

import re
from pathlib import Path

from stagewatch.cli import main
from tests.experiments.sources import SOURCES
from tests.experiments.table import document


def report(url: str, directory: Path) -> None:
    """As an experiment leaves it."""
    given = ["report", "experiment", "--prometheus", url, "--fault", "cpu-1", "--format", "json"]
    assert main([*given, "--output", str(directory)]) == 0


def test_measured_numbers_stand_beside_the_sources(contention_url: str, tmp_path: Path) -> None:
    report(contention_url, tmp_path / "starved-rollout")
    text = document(tmp_path, "some command")
    row = next(line for line in text.splitlines() if line.startswith("| S1 #2 |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2] == "rollout_worker_2 / rollout 2, rollout"
    assert "\nIt was busy.\n" in document(tmp_path, "some command", "It was busy.")
    assert cells[4:6] == ["30.0 s", "30.0 s"]
    assert cells[6] == "28.0 s / not seen"
    assert cells[8] == "5 / 1"
    batch = next(line for line in text.splitlines() if line.startswith("| batch size |"))
    assert "1600 → 1500" in batch and "| 1600 (1600 ± 0) | 1500 | 70.0 s |" in batch
    memory = next(line for line in text.splitlines() if line.startswith("| SM activity |"))
    assert memory.count("not seen") == 4


def test_every_row_of_the_table_has_its_columns(contention_url: str, tmp_path: Path) -> None:
    report(contention_url, tmp_path / "starved-rollout")
    columns = 0
    for line in document(tmp_path, "some command").splitlines():
        found = len(re.findall(r"(?<!\\)\|", line))
        columns = 0 if not found else columns or found
        assert found == columns, line


def test_the_expressions_for_the_evidence_are_valid() -> None:
    for source in SOURCES.values():
        for evidence in source.evidence:
            re.compile(evidence.series)
            re.compile(evidence.component.replace("{origin}", "x"))
