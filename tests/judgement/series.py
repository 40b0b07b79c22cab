"""What node agents export of the ranks of made-up jobs: the facts as series at one moment."""

from __future__ import annotations

from collections.abc import Iterator

from stagewatch.judgement.facts import RankFacts
from stagewatch.ranks.wait_class import WaitClass

Sample = tuple[str, dict[str, str], float]
"""A metric, its labels and its value."""


def node_of(rank: RankFacts) -> str:
    """The node that a rank is on, of three."""
    return f"n{rank.rank % 3}"


def series_of(rank: RankFacts, cluster: str = "c") -> Iterator[Sample]:
    """Every series of a rank; none of one that has left (`left_seconds`).

    What it has shown of its stages counts for its role, and goes out once for each rank.
    """
    if rank.left_seconds is not None:
        return
    key = {"cluster": cluster, "node": node_of(rank), "job_id": rank.job_id, "role": rank.role}
    mine = {**key, "rank": str(rank.rank)}
    for name, value, labels in (*_state(rank), *_collectives(rank)):
        if value is not None:
            yield name, {**mine, **{label: str(text) for label, text in labels.items()}}, value
    gaps = float(90 if rank.gaps is None else rank.gaps)
    for bound in ("4.0", "+Inf"):
        yield "rl_progress_gap_seconds_bucket", {**key, "stage": "train", "le": bound}, gaps
    yield "rl_progress_gap_seconds_count", {**key, "stage": "train"}, gaps
    for stage in rank.stages:
        yield "rl_progress_gap_longest_seconds", {**key, "stage": stage}, 4.0


_Own = tuple[str, float | None, dict[str, object]]


def _state(rank: RankFacts) -> Iterator[_Own]:
    yield "rl_rank_up", float(rank.wait_class is not WaitClass.GONE), {}
    yield "rl_rank_info", 1.0, {"pid": rank.pid, "world_size": rank.world_size}
    yield "rl_rank_progress_age_seconds", rank.progress_age_seconds, {}
    yield "rl_rank_started_timestamp_seconds", rank.started, {}
    yield "rl_rank_expected_seconds", rank.expected_seconds, {}
    yield "rl_rank_at_work", 1.0 if rank.at_work else None, {"by": "io"}
    yield "rl_rank_storage_wait_seconds", rank.storage_wait_seconds or None, {}
    where: dict[str, object] = {"stage": rank.stage, "substage": rank.substage}
    yield "rl_rank_stage_open_seconds", rank.stage_open_seconds, where
    yield "rl_rank_wait_class", 1.0, {"class": rank.wait_class.value}
    yield "rl_rank_step", rank.step, {}
    yield "rl_rank_step_age_seconds", rank.step_age_seconds, {}
    if rank.stack.group:
        yield "rl_rank_stack_group", float(rank.stack.still), {"group": rank.stack.group}
    for name, seconds in rank.calls.items():
        yield "rl_call_oldest_seconds", seconds, {"name": name}


def _collectives(rank: RankFacts) -> Iterator[_Own]:
    for group, sequence in rank.collectives.items():
        yield "rl_rank_collective_seq", sequence, {"group": group}
    for group, size in rank.group_sizes.items():
        yield "rl_rank_group_size", size, {"group": group}
    for group, call in rank.inside.items():
        peer = "" if call.peer is None else call.peer
        called: dict[str, object] = {"group": group, "op": call.op, "peer": peer}
        yield "rl_rank_collective_inside_seconds", call.seconds, called
        yield "rl_rank_collective_elements", call.elements, {"group": group}
