"""A small simulator of pipeline-parallel training: all forwards, then all backwards.

Written from the description of operations in arXiv 2505.05713, section 3; it makes tables as those
that `tests.bench.pipeline_tables` reads, with a known cause of loss.
"""

from __future__ import annotations

from collections.abc import Callable

TRANSFER = 0.001
Cost = Callable[[int, int, int, int], float]
"""Seconds of the forward pass of a step, replica, stage and micro-batch; backward takes twice."""
Row = dict[str, object]


def table(cost: Cost, *, steps: int = 8, replicas: int = 4, stages: int = 1) -> list[Row]:
    """The table of a job with eight micro-batches a step."""
    return [row for step in range(steps) for row in _step(step, cost, replicas, stages)]


def _step(step: int, cost: Cost, replicas: int, stages: int, batches: int = 8) -> list[Row]:
    rows: list[Row] = []
    computed: dict[tuple[int, int], float] = {}

    def put(replica: int, stage: int, kind: str, number: int, start: float, end: float) -> None:
        rank = stage * replicas + replica
        named = {"dp_rank": replica, "stage": stage, "rank": rank, "step": step, "optype": kind}
        rows.append({**named, "seq_id": number, "start_ts": start, "duration": end - start})

    for replica in range(replicas):
        free = [TRANSFER] * stages
        for stage in range(stages):
            put(replica, stage, "params-all-gather", 0, 0.0, TRANSFER)
        for way, scale in (("forward", 1.0), ("backward", 2.0)):
            order = range(stages) if way == "forward" else reversed(range(stages))
            arrived = [0.0] * batches
            for position, stage in enumerate(order):
                for batch in range(batches):
                    if position:
                        begin = free[stage]
                        put(replica, stage, f"{way}-recv", batch, begin, max(begin, arrived[batch]))
                    start = max(free[stage], arrived[batch])
                    end = start + scale * cost(step, replica, stage, batch)
                    put(replica, stage, f"{way}-compute", batch, start, end)
                    free[stage], arrived[batch] = end, end + TRANSFER
                    if position < stages - 1:
                        put(replica, stage, f"{way}-send", batch, end, arrived[batch])
        computed |= {(replica, stage): free[stage] for stage in range(stages)}
    for stage in range(stages):
        reduced = max(computed[replica, stage] for replica in range(replicas)) + TRANSFER
        for replica in range(replicas):
            put(replica, stage, "grads-reduce-scatter", 0, computed[replica, stage], reduced)
            put(replica, stage, "optimizer", 0, reduced, reduced + TRANSFER)
    return rows
