"""Writes the stage record from inside a training process; standard library only.

A trainer calls the functions of `_api.py`, or a hook (`hooks/`) calls them for its framework.  They
write into the calling thread's lane (`_lane.py`) of the process' mapped file (`_recorder.py`),
which the node agent reads.  `record.py` beside this package has the layout.  Open `_api.py` first.
"""

from stagewatch.client._api import (
    call,
    close,
    collective,
    expect,
    heartbeat,
    init,
    scalar,
    stage,
    throughput,
)
from stagewatch.client._collectives import watch_collectives
from stagewatch.client._install import install
from stagewatch.client._replicas import replicated, watch_replicas

__all__ = [
    "call",
    "close",
    "collective",
    "expect",
    "heartbeat",
    "init",
    "install",
    "replicated",
    "scalar",
    "stage",
    "throughput",
    "watch_collectives",
    "watch_replicas",
]
