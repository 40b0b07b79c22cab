"""Whom a rank's work is compared with: ranks that have the same part of the model.

Agents tell it, as Prometheus would have to look through the groups of every rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from stagewatch.ranks.records import RankRecord
from stagewatch.record import POINT_TO_POINT

ROLE, NOBODY = "", "none"
"""What stands for all ranks of the role, and for nobody."""
LEAST_PEERS, LEAST_PARTS = 3, 2
"""Members of a data-parallel group, as there is no median of two, and of a pipeline."""
MESSAGES_SECONDS = 600.0
"""Since its last message a rank may be a part of a pipeline."""

_DATA, _PIPELINE = (
    re.compile(rf"(.*[^a-z])?({names})([^a-z].*)?", re.IGNORECASE | re.DOTALL)
    for names in (r"dp|data.?parallel", r"pp|pipe|pipeline")
)
Admits = Callable[[str, str, str, str], bool]
"""Whether a name of a kind of some job and role may become a label."""


def peers_of(record: RankRecord, now: float, admits: Admits) -> str:
    """The data-parallel group of a rank, else its role, or nobody where it may be a part of a
    pipeline: it sends or receives messages, or is in a group with that name.

    `now` is a time of the clock that counts suspend.
    """
    groups = sorted((group.size or 0, name) for name, group in record.groups.items())
    of = "group", record.job_id, record.role
    for size, name in groups:
        if size >= LEAST_PEERS and _is_data_parallel(name) and admits(*of, name):
            return name
    messages = record.groups.get(POINT_TO_POINT)
    if messages is not None and messages.sequence and now - messages.entered < MESSAGES_SECONDS:
        return NOBODY
    parts = any(size >= LEAST_PARTS and _is_pipeline(name) for size, name in groups)
    return NOBODY if parts else ROLE


@lru_cache(maxsize=4096)
def _is_data_parallel(name: str) -> bool:
    return _DATA.fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _is_pipeline(name: str) -> bool:
    return _PIPELINE.fullmatch(name) is not None
