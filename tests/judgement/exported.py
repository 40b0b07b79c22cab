"""What node agents and rules would have exported of some ranks, as the history of a Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagewatch.judgement.facts import RankFacts, RecordState
from stagewatch.ranks.wait_class import WaitClass
from tests.report.filled import Past


def export(past: Past, ranks: Sequence[RankFacts], cluster: str = "c") -> None:
    """Add the series of these ranks, as they are at the end of `past`.

    How a rank waited before its job stood still is exported until half a minute ago.
    """
    for rank in ranks:
        node = rank.node or f"n{rank.rank % 3}"
        mine = {"cluster": cluster, "node": node, "job_id": rank.job_id, "role": rank.role}
        _Rank(past, mine | {"rank": rank.rank}, rank).add()
    for role in {(rank.job_id, rank.role) for rank in ranks if rank.record is RecordState.KEPT}:
        _role(past, cluster, *role, [r for r in ranks if (r.job_id, r.role) == role])


class _Rank:
    def __init__(self, past: Past, mine: dict[str, Any], rank: RankFacts) -> None:
        self._past = past
        self._mine = mine
        self._rank = rank

    def _add(self, metric: str, value: float | None, /, **labels: object) -> None:
        if value is not None:
            self._past.add(metric, float(value), **self._mine, **labels)

    def add(self) -> None:
        rank = self._rank
        present = "rl_rank_up" if rank.record is RecordState.KEPT else "rl_rank_still_seconds"
        age = (
            "rl_rank_still_seconds" if rank.shows_only_activity else "rl_rank_progress_age_seconds"
        )
        if rank.left_seconds is not None:
            until = self._past.end - rank.left_seconds
            alive = lambda when: 1.0 if when <= until else None  # noqa: E731
            self._past.add(present, alive, **self._mine)
            self._past.add(
                "rl_rank_info", alive, **self._mine, pid=rank.pid, world_size=rank.world_size
            )
            return
        if rank.record is RecordState.KEPT:
            gone = rank.wait_class is WaitClass.GONE
            self._add("rl_rank_up", not gone)
            self._add("rl_rank_gone", 1 if gone else None)
        self._add("rl_rank_info", 1, pid=rank.pid, world_size=rank.world_size, uuid=rank.gpu)
        self._add(age, rank.progress_age_seconds)
        self._add("rl_rank_started_timestamp_seconds", rank.started)
        self._add("rl_rank_expected_seconds", rank.expected_seconds)
        self._add("rl_rank_at_work", 1 if rank.at_work else None, by="io")
        self._add("rl_rank_storage_wait_seconds", rank.storage_wait_seconds or None)
        where = {"stage": rank.stage, "substage": rank.substage}
        self._add("rl_rank_stage_open_seconds", rank.stage_open_seconds, **where)
        self._add("rl_rank_wait_class", 1, **{"class": rank.wait_class.value})
        if rank.device:
            self._add("rl_rank_device_state", 1, state=rank.device.value)
        self._add("rl_rank_step", rank.step)
        self._add("rl_rank_step_age_seconds", rank.step_age_seconds)
        if rank.stack.group:
            self._add("rl_rank_stack_group", rank.stack.still, group=rank.stack.group)
            line = rank.stack
            self._add(
                "rl_rank_stack_frame_info", 1, frame=line.frame, call=line.call, whom=line.whom
            )
        for wait in rank.kernel_waits:
            whom = {"for_role": wait.role, "for_rank": "" if wait.rank is None else wait.rank}
            more = {"process": wait.process, "address": wait.address, "through": wait.through}
            self._add("rl_rank_waits_for", 60.0, how=wait.how, **whom, **more)
        for one in rank.nccl:
            told = {"name": one.name, "member": one.member, "members": one.members, "op": one.op}
            told |= {"bytes": one.size, "state": one.state, "witness": one.witness}
            self._add("rl_rank_nccl_operation", one.sequence, communicator=one.id, **told)
            for wait in one.transfers:
                which = {"waits": wait.waits, "peer": wait.peer, "network": wait.network}
                self._add("rl_rank_nccl_wait_info", 1, communicator=one.id, **which)
        if rank.first_failure_age_seconds is not None:
            raised = self._past.end - rank.first_failure_age_seconds
            error, _, stage = rank.first_failure.partition(" in ")
            name = "rl_rank_first_failure_timestamp_seconds"
            self._add(name, raised, error=error, stage=stage)
        if rank.behind:
            self._add("rank:rl_straggler:ratio", 8.0, stage=rank.stage)
        self._groups()

    def _groups(self) -> None:
        rank = self._rank
        for group, sequence in rank.collectives.items():
            self._add("rl_rank_collective_seq", sequence, group=group)
        for group, size in rank.group_sizes.items():
            self._add("rl_rank_group_size", size, group=group)
        for group, call in rank.inside.items():
            peer = "" if call.peer is None else call.peer
            name = "rl_rank_collective_inside_seconds"
            self._add(name, call.seconds, group=group, op=call.op, peer=peer)
            self._add("rl_rank_collective_elements", call.elements, group=group)
        for name, seconds in rank.calls.items():
            self._add("rl_call_oldest_seconds", seconds, name=name)


def _role(past: Past, cluster: str, job_id: str, role: str, ranks: Sequence[RankFacts]) -> None:
    """What the role has shown: gaps of four seconds in `train`, as `tests.judgement.cases` has it,
    and one in each other stage; and how many of its ranks live, which the rules count."""
    key = {"cluster": cluster, "job_id": job_id, "role": role}
    here = [rank for rank in ranks if rank.left_seconds is None and not rank.shows_only_activity]
    ages = [age for rank in here if (age := rank.progress_age_seconds) is not None]
    if ages:
        past.add("rl_progress_age_longest_seconds", max(ages), **key, node="n0")
    told = [rank.gaps for rank in ranks if rank.gaps is not None]
    gaps = float(sum(told) if told else 90)
    for bound in ("4.0", "+Inf"):
        past.add("rl_progress_gap_seconds_bucket", gaps, **key, node="n0", stage="train", le=bound)
    past.add("rl_progress_gap_seconds_count", gaps, **key, node="n0", stage="train")
    for stage in sorted({stage for rank in ranks for stage in rank.stages}):
        past.add("rl_progress_gap_longest_seconds", 4.0, **key, node="n0", stage=stage)
    past.add(
        "job:rl_ranks_live:count",
        lambda when: (
            float(
                sum(
                    rank.wait_class is not WaitClass.GONE
                    or (rank.left_seconds is not None and when <= past.end - rank.left_seconds)
                    for rank in ranks
                )
            )
            or None
        ),
        **key,
    )
