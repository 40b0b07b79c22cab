"""Short words for label filters, so that every query honours the variables of its board.

`gpu_up{GPU, mig=""}` in a board's file becomes `gpu_up{cluster=~"$cluster", node=~"$node",
gpu=~"$gpu", mig=""}`.
"""

from __future__ import annotations

import re

_CLUSTER = 'cluster=~"$cluster"'
_NODE = f'{_CLUSTER}, node=~"$node"'
FILTERS = {
    "CLUSTER": _CLUSTER,
    "PARTITION": f'{_CLUSTER}, partition=~"$partition"',
    "NODE": _NODE,
    "GPU": f'{_NODE}, gpu=~"$gpu"',
    "JOB": f'{_CLUSTER}, job_id=~"$job_id"',
    "RANK": f'{_NODE}, job_id=~"$job_id"',
}
_WORD = re.compile(r"\{(" + "|".join(FILTERS) + r")\b")
_SPACE = re.compile(r"\s+")


def expand(expression: str) -> str:
    """The expression with its filter words replaced, on one line."""
    filled = _WORD.sub(lambda found: "{" + FILTERS[found[1]], expression)
    return _SPACE.sub(" ", filled).strip()
