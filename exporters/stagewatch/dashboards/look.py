"""Colours, thresholds and value mappings, which mean the same on every board."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stagewatch.stages import CODES

GREEN = "green"
AMBER = "orange"
RED = "red"
BLUE = "blue"
GREY = "#8e8e8e"
"""The colour for neither good nor bad."""
GPU_HOURS = "suffix: GPU h"
"""The unit of the time for which GPUs were held."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The colour of readings from `value` up, in the panel's unit; `None` is from the bottom."""

    color: str
    value: float | None = None


def steps(*later: tuple[float, str], base: str = GREEN) -> tuple[Threshold, ...]:
    """Thresholds in rising order: `steps((75, AMBER), (85, RED))` is green below 75."""
    return (Threshold(base), *(Threshold(color, value) for value, color in later))


NEUTRAL = (Threshold(BLUE),)
ANY_IS_BAD = steps((1, RED))
ANY_IS_AMBER = steps((1, AMBER))


def threshold_json(thresholds: tuple[Threshold, ...]) -> dict[str, Any]:
    """The JSON of `fieldConfig.defaults.thresholds`."""
    return {
        "mode": "absolute",
        "steps": [{"color": step.color, "value": step.value} for step in thresholds],
    }


def mapping(values: Mapping[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """Texts and colours for single values: `mapping({"0": ("down", RED)})`."""
    options = {
        value: {"index": index, "text": text, "color": color}
        for index, (value, (text, color)) in enumerate(values.items())
    }
    return [{"type": "value", "options": options}]


STAGE_COLORS = {
    "idle": GREY,
    "rollout": "blue",
    "reward": "light-blue",
    "logprob": "purple",
    "advantage": "super-light-purple",
    "train": "green",
    "weights_update": "yellow",
    "checkpoint": "orange",
    "eval": "light-green",
    "init": "semi-dark-blue",
    "cleanup": "dark-orange",
    "other": "dark-purple",
}
STATE_COLORS = STAGE_COLORS | {
    "busy": "super-light-green",
    "waiting": "super-light-yellow",
    "stalled": "red",
    "slowed": "light-red",
    "unused": "super-light-red",
    "unobserved": "#5a5a5a",
    "free": "#3d4a5c",
    "reserved": "light-purple",
    "drained": "dark-yellow",
    "down": "dark-red",
}
"""The states of GPUs (docs/goodput.md); those that are stages have the colours of stages."""
STAGE_NAMES = mapping({str(code): (name, STAGE_COLORS[name]) for name, code in CODES.items()})
"""`rl_rank_stage_code` as text, in the colours that every board uses for stages."""
SEVERITIES = mapping(
    {"critical": ("critical", RED), "warning": ("warning", AMBER), "info": ("info", BLUE)}
)
"""The severity of an alert, in its colour."""
SEVERITY_CODES = mapping({"2": ("critical", RED), "1": ("warning", AMBER), "0": ("info", BLUE)})
"""The same as a number."""
