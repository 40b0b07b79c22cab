"""Reads the operations of a pipeline-parallel job from a table with one row for each.

The columns are those of ByteDance's public traces (https://github.com/ByteDance-Seed/StragglerAnalysis,
"Understanding Stragglers in Large Model Training Using What-if Analysis", arXiv 2505.05713):
`dp_rank`, `stage`, `rank`, `step`, `optype`, `seq_id`, `start_ts` and `duration` in seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from stagewatch.whatif.replay import Operation, Work

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "seq_id", "start_ts", "duration")
_PASSES = ("forward", "backward")
_COMPUTE = {"forward-compute", "backward-compute", "optimizer", "gc"}
_PEERS = {"forward-send": 0, "forward-recv": -1, "backward-send": -1, "backward-recv": 0}
"""By operation: which boundary of the pipeline it crosses, from its stage."""
_REPLICAS = {"params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"}
"""Operations that the ranks of one stage enter together."""

Row = tuple[str, int]
"""Kind and number within step and rank."""


def operations_of(rows: Iterable[Mapping[str, Any]]) -> list[Operation]:
    """The operations of a table.

    Raises `ValueError` if a stage has several parts of the model (virtual stages).
    """
    operations: list[Operation] = []
    of_rank: dict[tuple[int, int], dict[Row, int]] = defaultdict(dict)
    for row in rows:
        if row.get("mc", 0) > 0:
            raise ValueError("virtual pipeline stages are not understood")
        replica, stage, rank, step, kind, number, start, lasted = (row[name] for name in COLUMNS)
        work = Work.COMPUTE if kind in _COMPUTE else Work.NETWORK
        one = Operation(rank, stage, step, kind, work, start, start + lasted)
        one.group = _group(kind, number, replica, stage)
        of_rank[step, rank][kind, number] = len(operations)
        operations.append(one)
    for rows in of_rank.values():
        _order(operations, rows)
    return operations


def _group(kind: str, number: int, replica: int, stage: int) -> object:
    """The key of the operations that an operation must meet."""
    if kind in _PEERS:
        return kind.partition("-")[0], number, replica, stage + _PEERS[kind]
    if kind in _REPLICAS:
        return kind, number, stage
    if kind.startswith("embedding"):  # the first and the last stage share the table
        return kind, number, replica
    return (kind, number) if kind == "optimizer-clip-main-grad" else None


def _order(operations: list[Operation], rows: dict[Row, int]) -> None:
    """Set the predecessors of the operations of one rank and step.

    Operations other than sends and receives follow each other in one stream.  Those that overlap
    with computing follow each other in a second stream, behind the operations that had ended.
    """
    main = sorted(
        (at for (kind, _), at in rows.items() if kind not in _PEERS),
        key=lambda at: operations[at].start,
    )
    computing = [at for at in main if operations[at].kind.endswith("-compute")]
    if not computing:
        return
    first, last = operations[computing[0]].start, operations[computing[-1]].end
    own = set(computing)
    beside = [at for at in main if at not in own and first < operations[at].start < last]
    stream = [at for at in main if at not in set(beside)]
    for before, at in pairwise(stream):
        operations[at].after.append(before)
    for position, at in enumerate(beside):
        done = [u for u in computing if operations[u].end <= operations[at].start]
        operations[at].after += [*beside[max(0, position - 1) : position], *done[-1:]]
    if beside:  # operations after computing wait for the second stream
        for at in [at for at in stream if operations[at].start >= last][:1]:
            operations[at].after.append(beside[-1])
    _order_transfers(operations, rows)
    begun = [at for at in computing if operations[at].kind == "backward-compute"]
    position = computing.index(begun[0]) if begun else 0
    if position > 1:  # gradients are received once the pipeline is nearly full
        for kind in ("backward-recv", "backward-send"):
            if (kind, 0) in rows:
                operations[rows[kind, 0]].after.append(computing[position - 2])


def _order_transfers(operations: list[Operation], rows: dict[Row, int]) -> None:
    """A send follows its computing.  A receive follows the computing before it, and its own
    computing waits for it."""
    for (kind, number), at in rows.items():
        if kind not in _PEERS:
            continue
        way, _, what = kind.partition("-")
        own, earlier = rows.get((f"{way}-compute", number)), rows.get((kind, number - 1))
        if earlier is not None:
            operations[at].after.append(earlier)
        if own is not None and what == "send":
            operations[at].after.append(own)
        elif own is not None:
            operations[own].after.append(at)
            before_own = rows.get((f"{way}-compute", number - 1))
            if before_own is not None:
                operations[at].after.append(before_own)
