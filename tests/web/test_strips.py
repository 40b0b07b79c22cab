"""Strips of stages: what a row of slots shows of spans, and of the records of real ranks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.web.facts import SLOTS, STRIP_SECONDS, Segment
from stagewatch.web.strips import Span, Strips, slots
from tests.running import Python

SLOT = STRIP_SECONDS / SLOTS
NOW = 10_000 * SLOT


def stage_at(segments: list[Segment]) -> list[str]:
    """The stage of each slot, empty where there is none."""
    row = [""] * SLOTS
    for segment in segments:
        for place in range(segment.start, segment.start + segment.length):
            assert row[place] == ""
            row[place] = segment.stage
    return row


def test_the_innermost_stage_is_shown() -> None:
    spans: list[Span] = [
        (NOW - 40 * SLOT, NOW, "train"),
        (NOW - 30 * SLOT, NOW - 20 * SLOT, "checkpoint"),
    ]
    counts = Counter(stage_at(slots(spans, NOW)))
    assert (counts["train"], counts["checkpoint"]) == (30, 10)


@given(
    st.lists(
        st.tuples(
            st.floats(-2 * STRIP_SECONDS, 10, allow_nan=False),
            st.floats(0, STRIP_SECONDS, allow_nan=False),
            st.sampled_from(["rollout", "train", "eval"]),
        ),
        max_size=30,
    )
)
def test_any_spans_make_a_strip(raw: list[tuple[float, float, str]]) -> None:
    """Records are written by users, so spans may overlap in any way and lie about times."""
    spans = [(NOW + begin, NOW + begin + length, stage) for begin, length, stage in raw]
    segments = slots(spans, NOW)
    stage_at(segments)
    assert all(one.start >= 0 and one.start + one.length <= SLOTS for one in segments)
    assert {one.stage for one in segments} <= {"rollout", "train", "eval", "idle"}


def test_a_real_rank_has_a_strip_that_goes_on(python: Python, record_dir: Path) -> None:
    rank = python(
        """
        import time, stagewatch
        stagewatch.init(job_id="540", rank=3, world_size=8)
        with stagewatch.stage("rollout"):
            time.sleep(0.2)
        with stagewatch.stage("train"):
            print("there", flush=True)
            time.sleep(600)
        """,
        STAGEWATCH_DIR=str(record_dir),
    )
    rank.said("there")
    strips = Strips(RankDirectory(RecordDirectory(record_dir, Procfs())))
    (key,) = strips()
    assert key == ("540", "train", "3")
    assert {segment.stage for segment in strips()[key]} <= {"rollout", "train", "idle"}
    assert strips()[key][-1].start + strips()[key][-1].length == SLOTS
