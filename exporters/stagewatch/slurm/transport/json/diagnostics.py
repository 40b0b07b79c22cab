"""The controller's diagnostics out of JSON (`sdiag --json` from 23.02, slurmrestd's /diag)."""

from __future__ import annotations

from typing import Any

from stagewatch.core.errors import SourceError
from stagewatch.slurm.model import Diagnostics, RpcCount
from stagewatch.slurm.transport.json.values import Object, moment, number, objects, text

_MICRO = 1e-6
_VALUES = {
    "server_thread_count": ("server_threads", 1),
    "agent_queue_size": ("agent_queue", 1),
    "agent_count": ("agents", 1),
    "agent_thread_count": ("agent_threads", 1),
    "dbd_agent_queue_size": ("dbd_queue", 1),
    "jobs_submitted": ("jobs_submitted", 1),
    "jobs_started": ("jobs_started", 1),
    "jobs_completed": ("jobs_completed", 1),
    "jobs_canceled": ("jobs_canceled", 1),
    "jobs_failed": ("jobs_failed_internal", 1),
    "schedule_cycle_last": ("main_last_cycle", _MICRO),
    "schedule_cycle_max": ("main_max_cycle", _MICRO),
    "schedule_cycle_mean": ("main_mean_cycle", _MICRO),
    "schedule_cycle_total": ("main_cycles", 1),
    "schedule_queue_length": ("main_queue_length", 1),
    "bf_cycle_last": ("backfill_last_cycle", _MICRO),
    "bf_cycle_max": ("backfill_max_cycle", _MICRO),
    "bf_cycle_mean": ("backfill_mean_cycle", _MICRO),
    "bf_cycle_counter": ("backfill_cycles", 1),
    "bf_last_depth": ("backfill_last_depth", 1),
    "bf_queue_len": ("backfill_queue_length", 1),
    "bf_backfilled_jobs": ("backfilled_jobs", 1),
}


def diagnostics(found: Object) -> Diagnostics:
    """Raises `SourceError` where there are no statistics in the answer."""
    statistics = found.get("statistics")
    if not isinstance(statistics, dict):
        raise SourceError("there are no statistics in the answer")
    values: dict[str, float] = {}
    for key, (name, factor) in _VALUES.items():
        value = number(statistics.get(key))
        if value is not None:
            values[name] = value * factor
    return Diagnostics(
        values,
        moment(statistics.get("req_time_start")),
        _rpcs(statistics.get("rpcs_by_message_type"), "message_type"),
        _rpcs(statistics.get("rpcs_by_user"), "user"),
    )


def _rpcs(listed: Any, name: str) -> tuple[RpcCount, ...]:
    found = []
    for each in objects(listed):
        count, total = number(each.get("count")), number(each.get("total_time"))
        if text(each.get(name)) and count is not None:
            found.append(RpcCount(text(each[name]), count, (total or 0) * _MICRO))
    return tuple(found)
