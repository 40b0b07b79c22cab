"""The peers with whose work a rank's is compared: ranks with the same part of the model.

Agents export this, since Prometheus would have to search the groups of every rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from stagewatch.ranks.records import RankRecord
from stagewatch.record import POINT_TO_POINT

ROLE, NOBODY = "", "none"
"""The label values for all ranks of the role, and for nobody."""
LEAST_PEERS, LEAST_PARTS = 3, 2
"""The least members of a data-parallel group (two have no median), and of a pipeline."""
MESSAGES_SECONDS = 600.0
"""A rank may be a part of a pipeline for so long after its last message."""

_DATA, _PIPELINE = (
    re.compile(rf"(.*[^a-z])?({names})([^a-z].*)?", re.IGNORECASE | re.DOTALL)
    for names in (r"dp|data.?parallel", r"pp|pipe|pipeline")
)
Admits = Callable[[str, str, str, str], bool]
"""Whether a name may become a label, by kind, job, role and name."""


def peers_of(record: RankRecord, now: float, admits: Admits) -> str:
    """The data-parallel group of a rank, else `ROLE`; `NOBODY` if it may be a part of a pipeline,
    since it sends or receives messages, or is in a group with such a name.

    `now`: a time of the clock that counts suspend.
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
