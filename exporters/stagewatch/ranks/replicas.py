"""Checks of data that must be the same on all ranks, from their stage records.

Rules compare the checks of a group at the newest step that was seen (`alerts/replicas.rules.yaml`).
"""

from __future__ import annotations

import re

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, gauge
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.model import RANK_LABELS
from stagewatch.ranks.records import Life
from stagewatch.ranks.stages import Vocabulary
from stagewatch.record import NONFINITE, REPLICA, REPLICA_SLOTS, REPLICA_STEPS

MAX_NAMES = 16
"""Different things that one role of a job may check."""
_NAME = re.compile(rf"{REPLICA}({'|'.join(map(str, REPLICA_SLOTS))})/([^@]*)@(.*)", re.S)

CHECK = gauge(
    "rl_rank_replica_check",
    "Last check of a value that must be equal on all ranks of the group, at a step that is a "
    "multiple of `every`: the step (modulo 2^21) times 2^32, plus a checksum.",
    (*RANK_LABELS, "uuid", "group", "name", "every"),
)
NOT_FINITE = gauge(
    "rl_rank_nonfinite_gradient_step",
    "First step of the optimizer in which a gradient of this rank alone, before any reduction, "
    "was NaN or infinite; absent before.",
    (*RANK_LABELS, "uuid"),
)


class ReplicasCollector(Collector):
    """Shows the checks of live ranks."""

    def __init__(self, ranks: RankDirectory) -> None:
        self._ranks = ranks
        self._names = Vocabulary()

    def collect(self) -> Samples:
        out = Samples()
        for rank in self._ranks.look().ranks:
            if rank.record is None or rank.life is not Life.ALIVE:
                continue
            for scalar, value in rank.record.replicas.items():
                if scalar == NONFINITE and 0 < value < 2**53:
                    out.add(NOT_FINITE, value, *rank.key, rank.gpu)
                found = _NAME.fullmatch(scalar)
                if not found or not 0 <= value < REPLICA_STEPS << 32:
                    continue
                slot, name, group = found.groups()
                what = f"{name}@{group}"
                if self._names.admits("replica", rank.job_id, rank.role, what, MAX_NAMES):
                    out.add(CHECK, value, *rank.key, rank.gpu, group, name, slot)
        if not out.families:
            raise NoData("no rank checks its replicas on this node")
        return out


SPEC = Declaration(
    name="replicas",
    help="checks of values that must be equal on all ranks, from their stage records",
    interval=5.0,
    options=NoOptions,
)
