"""The house library of dashboards: content in `dashboards/NAME.dashboard.py` and the
`dashboards/sections` that the longer ones import, shape in here.

It stands on grafanalib, which the agents never load: only this subpackage imports it.
"""

from stagewatch.dashboards.board import board, section
from stagewatch.dashboards.links import TO_JOB, TO_NODE
from stagewatch.dashboards.look import (
    AMBER,
    ANY_IS_AMBER,
    ANY_IS_BAD,
    BLUE,
    GREEN,
    GREY,
    RED,
    STAGE_NAMES,
    Threshold,
    mapping,
    steps,
)
from stagewatch.dashboards.panels import (
    Query,
    bar_gauge,
    heatmap,
    stat,
    state_timeline,
    text,
    timeseries,
)
from stagewatch.dashboards.tables import Column, table

__all__ = [
    "AMBER",
    "ANY_IS_AMBER",
    "ANY_IS_BAD",
    "BLUE",
    "GREEN",
    "GREY",
    "RED",
    "STAGE_NAMES",
    "TO_JOB",
    "TO_NODE",
    "Column",
    "Query",
    "Threshold",
    "bar_gauge",
    "board",
    "heatmap",
    "mapping",
    "section",
    "stat",
    "state_timeline",
    "steps",
    "table",
    "text",
    "timeseries",
]
