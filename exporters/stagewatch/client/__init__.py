"""Writes the stage record from inside a training process; standard library only."""

from stagewatch.client._api import close, collective, heartbeat, init, scalar, stage
from stagewatch.client._collectives import watch_collectives
from stagewatch.client._install import install

__all__ = [
    "close",
    "collective",
    "heartbeat",
    "init",
    "install",
    "scalar",
    "stage",
    "watch_collectives",
]
