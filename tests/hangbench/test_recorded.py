"""Shapes that were played once are judged as they were when somebody last looked."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.judgement.case_file import CaseFile
from tests.hangbench.recorded import BLIND, DRAWN, RECORDED, cases, expected, replay, summary
from tests.hangbench.score import RIGHT


@pytest.fixture(scope="module")
def recorded() -> list[CaseFile]:
    return list(cases(RECORDED))


def test_every_recorded_shape_is_judged_as_before(recorded: list[CaseFile]) -> None:
    """What is better now goes into `expected.json` by `--accept`, as the README says.

    Most faults are named, and no healthy job is paged for.
    """
    played = replay(recorded)
    assert {one.name: summary(one) for one in played} == expected(RECORDED)
    outcomes = [one for one in played if one.counts]
    assert len(outcomes) > 200
    faults = [one for one in outcomes if not one.healthy]
    assert [one.name for one in outcomes if one.healthy and one.paged_after is not None] == []
    assert sum(one.answer == RIGHT for one in faults) >= 0.9 * len(faults)


@pytest.mark.parametrize("folder", [BLIND, DRAWN], ids=["blind", "drawn"])
def test_every_shape_of_a_first_run_is_judged_as_before(folder: Path) -> None:
    """Rightly or not: `docs/accuracy.md` has how often."""
    assert {one.name: summary(one) for one in replay(list(cases(folder)))} == expected(folder)
