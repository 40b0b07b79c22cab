"""Names and numbers that a rank writes over time: bounded per job before they become series."""

from __future__ import annotations

import dataclasses

import pytest

from stagewatch.core.exposition import Metric, Samples
from stagewatch.ranks import stages
from stagewatch.ranks.records import Frame, RankRecord
from tests.records import Shown

NOW = 5000.0
LOOKS = 3 * stages.MAX_NAMES
KEY = ("540", "train", "3")


class Node:
    """A node whose only rank writes something else at every look."""

    def __init__(self, record: RankRecord) -> None:
        self.group = record.groups["world"]
        self.record = dataclasses.replace(
            record, scalars={}, groups={}, failures={}, first_failure=None
        )
        self.ever: dict[Metric, set[tuple[str, ...]]] = {}
        self._shown = Shown()
        directory: object = self._shown
        self._collector = stages.StagesCollector(directory, boot_clock=lambda: NOW)  # type: ignore[arg-type]

    def look(self, name: str = "a", **changes: object) -> Samples:
        """What is exported for the rank with these changes, under a file of that name."""
        record = dataclasses.replace(self.record, name=name, **changes)  # type: ignore[arg-type]
        self._shown.records = [record]
        found = self._collector.collect()
        for metric, family in found.families.items():
            self.ever.setdefault(metric, set()).update(family)
        return found


@pytest.fixture
def node(record: RankRecord) -> Node:
    return Node(record)


def test_a_new_open_substage_at_every_look_ends_as_other(node: Node) -> None:
    lane = node.record.lanes[0]
    for number in range(LOOKS):
        frame = Frame("other", f"part {number}", None, NOW - 1)
        found = node.look(lanes=(dataclasses.replace(lane, frames=(frame,)),))
    assert len(node.ever[stages.STAGE_OPEN]) == stages.MAX_NAMES + 1
    assert found.value(stages.STAGE_OPEN, *KEY, "other", "other") == 1
    assert found.value(stages.FOLDED, "substage") == LOOKS - stages.MAX_NAMES


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_no_number_is_absent(node: Node, value: float) -> None:
    found = node.look(scalars={"reward": value, "kl": 0.5})
    assert found.value(stages.SCALAR, *KEY, "kl") == 0.5
    assert set(found.families[stages.SCALAR]) == {(*KEY, "kl")}


def test_marks_from_the_future_make_no_negative_age(node: Node) -> None:
    frame = Frame("train", "", 7, NOW + 1e6)
    lane = dataclasses.replace(node.record.lanes[0], frames=(frame,), progress=NOW + 1e6)
    found = node.look(lanes=(lane,))
    assert found.value(stages.PROGRESS_AGE, *KEY) == 0
    assert found.value(stages.STAGE_OPEN, *KEY, "train", "") == 0
    lane = dataclasses.replace(lane, frames=())
    assert node.look(lanes=(lane,)).value(stages.STAGE_OPEN, *KEY, "idle", "") == 0


def test_jobs_that_ended_are_forgotten_in_the_end() -> None:
    names = stages.Vocabulary()
    for i in range(stages.MAX_NAMES):
        names.admits("scalar", "old", "train", f"s{i}")
    for job in range(stages.MAX_JOBS):
        names.admits("scalar", str(job), "train", "reward")
    assert names.admits("scalar", "old", "train", "new")
