"""The library of the dashboards: their content is in `/dashboards`, their shape in here.

`/dashboards/NAME.dashboard.py` builds a board (`board.py`) out of panels (`panels.py`), whose
colours and value mappings (`look.py`) mean the same on all boards; `generate.py` writes each as
JSON in the shape of `modern.py`.  Open `panels.py` first.  Only this package imports grafanalib.
"""

from stagewatch.dashboards.board import board as board
from stagewatch.dashboards.board import section as section
from stagewatch.dashboards.look import AMBER as AMBER
from stagewatch.dashboards.look import ANY_IS_AMBER as ANY_IS_AMBER
from stagewatch.dashboards.look import ANY_IS_BAD as ANY_IS_BAD
from stagewatch.dashboards.look import GPU_HOURS as GPU_HOURS
from stagewatch.dashboards.look import GREEN as GREEN
from stagewatch.dashboards.look import RED as RED
from stagewatch.dashboards.look import SEVERITY_CODES as SEVERITY_CODES
from stagewatch.dashboards.look import STAGE_COLORS as STAGE_COLORS
from stagewatch.dashboards.look import STAGE_NAMES as STAGE_NAMES
from stagewatch.dashboards.look import STATE_COLORS as STATE_COLORS
from stagewatch.dashboards.look import mapping as mapping
from stagewatch.dashboards.look import steps as steps
from stagewatch.dashboards.modern import Panel as Panel
from stagewatch.dashboards.panels import Column as Column
from stagewatch.dashboards.panels import Query as Query
from stagewatch.dashboards.panels import above_zero as above_zero
from stagewatch.dashboards.panels import bar_gauge as bar_gauge
from stagewatch.dashboards.panels import count as count
from stagewatch.dashboards.panels import distribution as distribution
from stagewatch.dashboards.panels import heat_rows as heat_rows
from stagewatch.dashboards.panels import heatmap as heatmap
from stagewatch.dashboards.panels import stat as stat
from stagewatch.dashboards.panels import state_timeline as state_timeline
from stagewatch.dashboards.panels import table as table
from stagewatch.dashboards.panels import timeseries as timeseries
from stagewatch.dashboards.panels import worst as worst
