"""Where a table's cells lead: to the board of what they name, with time range and cluster kept."""

from __future__ import annotations


def _board_of_cell(uid: str, variable: str) -> str:
    kept = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"
    return f"/d/{uid}?{kept}&var-{variable}=${{__value.text}}"


TO_NODE = _board_of_cell("stagewatch-gpu-health", "node")
TO_JOB = _board_of_cell("stagewatch-job", "job_id")
