"""Shapes that were played once are judged as they were when somebody last looked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.judgement.case_file import CaseFile
from stagewatch.judgement.memory import Moment
from stagewatch.judgement.watch import Watch
from tests.hangbench.ablation import ablate
from tests.hangbench.player import Played
from tests.hangbench.recorded import (
    LOOK_SECONDS,
    RECORDED,
    Recorder,
    accept,
    cases,
    expected,
    replay,
    summary,
)
from tests.hangbench.score import RIGHT
from tests.hangbench.shape import find


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


def test_an_accepted_answer_is_expected(recorded: list[CaseFile], tmp_path: Path) -> None:
    outcomes = replay(recorded[:3])
    accept(outcomes, tmp_path)
    assert expected(tmp_path) == {one.name: summary(one) for one in outcomes}


def test_what_is_named_by_one_kind_of_evidence_is_lost_without_it(
    recorded: list[CaseFile],
) -> None:
    dead = next(case for case in recorded if case.job_id == "killed_and_not_restarted")
    rows = {row.split(" | ")[0].strip("| "): row for row in ablate([dead]).splitlines()}
    assert "| 0 | 1: killed_and_not_restarted |" in rows["process_gone"]
    assert "| 0 | 0 | 0 | 0 |" in rows["mismatch"]
    assert "| 0 | 0 | 0 | 0 |" in rows["the fact stack"]


@dataclass
class Watched:
    """What a judge sees of jobs of which each is in trouble all the time, until it sees nothing."""

    jobs: list[str]
    until: float

    def look(self, at: float) -> Any:
        if at > self.until:
            raise SourceError("nobody answers")
        seen = SimpleNamespace(moments=[Moment(at, ())])
        return SimpleNamespace(jobs={("lab", name): seen for name in self.jobs})


def test_what_was_played_is_kept_when_a_later_shape_fails(tmp_path: Path) -> None:
    first, second = (shape for shape in find("all")[:2])
    plays = [
        Played(shape, ["n"], {}, began, triggered=began + 20, ended=began + 60)
        for shape, began in ((first, 1000.0), (second, 1030.0))
    ]
    watch = Watched([first.name, second.name, "of somebody else"], until=1070.0)
    recorder = Recorder(cast(Watch, watch), tmp_path, begun=990.0)
    recorder.add(plays[0])
    with pytest.raises(SourceError):
        recorder.add(plays[1])
    (case,) = cases(tmp_path)
    assert (case.job_id, case.cluster) == (first.name, "lab")
    assert [moment.time for moment in case.moments] == [
        1000.0 + LOOK_SECONDS * number for number in range(13)
    ]
