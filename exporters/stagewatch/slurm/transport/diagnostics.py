"""The controller's diagnostics, from `sdiag`, `sdiag --json` (23.02) or slurmrestd's /diag.

`Jobs failed` there counts jobs that failed for slurmd or internal reasons only, not jobs whose
program failed; it is exported under a name that says so.  https://slurm.schedmd.com/sdiag.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stagewatch.core.errors import SourceError
from stagewatch.slurm.model import Diagnostics, RpcCount
from stagewatch.slurm.transport.json import Object, moment, number, objects, text

_SECTIONS = (
    ("Main schedule statistics", "main"),
    ("Backfilling stats", "backfill"),
    ("Remote Procedure Call statistics by message type", "rpc_type"),
    ("Remote Procedure Call statistics by user", "rpc_user"),
    ("Pending RPC", "pending"),
)
_MICRO = 1e-6
_TEXT: dict[tuple[str, str], tuple[str, float]] = {
    ("", "Server thread count"): ("server_threads", 1),
    ("", "Agent queue size"): ("agent_queue", 1),
    ("", "Agent count"): ("agents", 1),
    ("", "Agent thread count"): ("agent_threads", 1),
    ("", "DBD Agent queue size"): ("dbd_queue", 1),
    ("", "Jobs submitted"): ("jobs_submitted", 1),
    ("", "Jobs started"): ("jobs_started", 1),
    ("", "Jobs completed"): ("jobs_completed", 1),
    ("", "Jobs canceled"): ("jobs_canceled", 1),
    ("", "Jobs failed"): ("jobs_failed_internal", 1),
    ("main", "Last cycle"): ("main_last_cycle", _MICRO),
    ("main", "Max cycle"): ("main_max_cycle", _MICRO),
    ("main", "Mean cycle"): ("main_mean_cycle", _MICRO),
    ("main", "Total cycles"): ("main_cycles", 1),
    ("main", "Last queue length"): ("main_queue_length", 1),
    ("backfill", "Last cycle"): ("backfill_last_cycle", _MICRO),
    ("backfill", "Max cycle"): ("backfill_max_cycle", _MICRO),
    ("backfill", "Mean cycle"): ("backfill_mean_cycle", _MICRO),
    ("backfill", "Total cycles"): ("backfill_cycles", 1),
    ("backfill", "Last depth cycle"): ("backfill_last_depth", 1),
    ("backfill", "Last queue length"): ("backfill_queue_length", 1),
    ("backfill", "Total backfilled jobs (since last slurm start)"): ("backfilled_jobs", 1),
}
"""Section and label in sdiag's text: our name, and the factor that makes base units."""

_RPC = re.compile(r"\s*(\S+)\s+\(\s*\d+\)\s+count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)")


def parse_text(output: bytes) -> Diagnostics:
    """Raises `SourceError` where nothing of sdiag's output is recognised."""
    values: dict[str, float] = {}
    rpcs: dict[str, list[RpcCount]] = {"rpc_type": [], "rpc_user": []}
    since = None
    for section, line in _by_section(output.decode(errors="replace")):
        if section in rpcs:
            match = _RPC.match(line)
            if match:
                rpcs[section].append(RpcCount(match[1], int(match[2]), int(match[3]) * _MICRO))
            continue
        if line.startswith("Data since"):
            match = re.search(r"\((\d+)\)\s*$", line)
            since = int(match[1]) if match else None
            continue
        label, colon, text = line.strip().rpartition(":")
        known = _TEXT.get((section, label.strip()))
        if colon and known and re.fullmatch(r"\d+", text.strip()):
            values[known[0]] = int(text) * known[1]
    if not values:
        raise SourceError(f"sdiag printed something unknown: {output[:80]!r}")
    return Diagnostics(values, since, tuple(rpcs["rpc_type"]), tuple(rpcs["rpc_user"]))


def _by_section(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in text.splitlines():
        heading = next((name for start, name in _SECTIONS if line.startswith(start)), None)
        if heading is not None:
            section = heading
        elif line.strip():
            if section and not line[0].isspace():
                section = ""
            yield section, line


_MICRO = 1e-6
_JSON = {
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


def parse_json(found: Object) -> Diagnostics:
    """Raises `SourceError` where there are no statistics in the answer."""
    statistics = found.get("statistics")
    if not isinstance(statistics, dict):
        raise SourceError("there are no statistics in the answer")
    values: dict[str, float] = {}
    for key, (name, factor) in _JSON.items():
        value = number(statistics.get(key))
        if value is not None:
            values[name] = value * factor
    return Diagnostics(
        values,
        moment(statistics.get("req_time_start")),
        _listed_rpcs(statistics.get("rpcs_by_message_type"), "message_type"),
        _listed_rpcs(statistics.get("rpcs_by_user"), "user"),
    )


def _listed_rpcs(listed: Any, name: str) -> tuple[RpcCount, ...]:
    found = []
    for each in objects(listed):
        count, total = number(each.get("count")), number(each.get("total_time"))
        if text(each.get(name)) and count is not None:
            found.append(RpcCount(text(each[name]), count, (total or 0) * _MICRO))
    return tuple(found)
