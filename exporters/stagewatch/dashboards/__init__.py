"""The library of the dashboards: their content is in `/dashboards`, their shape in here.

`/dashboards/NAME.dashboard.py` builds a board (`board.py`) out of panels (`panels.py`), whose
colours and value mappings (`look.py`) mean the same on all boards; `generate.py` writes each as
JSON in the shape of `modern.py`.  Open `panels.py` first.  Only this package imports grafanalib.
"""

from stagewatch.dashboards.board import board, section
from stagewatch.dashboards.look import (
    AMBER,
    ANY_IS_AMBER,
    ANY_IS_BAD,
    GPU_HOURS,
    GREEN,
    GREY,
    RED,
    SEVERITY_CODES,
    STAGE_COLORS,
    STAGE_NAMES,
    STATE_COLORS,
    mapping,
    steps,
)
from stagewatch.dashboards.panels import (
    Column,
    Query,
    above_zero,
    bar_gauge,
    distribution,
    heat_rows,
    heatmap,
    stat,
    state_timeline,
    table,
    timeseries,
    worst,
)

__all__ = [
    "AMBER",
    "ANY_IS_AMBER",
    "ANY_IS_BAD",
    "GPU_HOURS",
    "GREEN",
    "GREY",
    "RED",
    "SEVERITY_CODES",
    "STAGE_COLORS",
    "STAGE_NAMES",
    "STATE_COLORS",
    "Column",
    "Query",
    "above_zero",
    "bar_gauge",
    "board",
    "distribution",
    "heat_rows",
    "heatmap",
    "mapping",
    "section",
    "stat",
    "state_timeline",
    "steps",
    "table",
    "timeseries",
    "worst",
]
