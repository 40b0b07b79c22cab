"""The canonical stages and their codes; frameworks' own names go to `substage`."""

from __future__ import annotations

STAGES = (
    "idle",
    "rollout",
    "reward",
    "logprob",
    "advantage",
    "train",
    "weights_update",
    "checkpoint",
    "eval",
    "init",
    "cleanup",
    "other",
)
"""Canonical names; a name's position is its code in state timelines and in the record."""

CODES = {name: code for code, name in enumerate(STAGES)}
OUTSIDE_STEPS = ("init", "eval", "checkpoint", "cleanup")
"""Stages that belong to no step of the training, and that ranks need not share."""
IDLE = CODES["idle"]
OTHER = CODES["other"]
