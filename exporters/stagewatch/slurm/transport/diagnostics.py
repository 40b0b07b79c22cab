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
_VALUES = (
    ("server_threads", 1, "", "Server thread count", "server_thread_count"),
    ("agent_queue", 1, "", "Agent queue size", "agent_queue_size"),
    ("agents", 1, "", "Agent count", "agent_count"),
    ("agent_threads", 1, "", "Agent thread count", "agent_thread_count"),
    ("dbd_queue", 1, "", "DBD Agent queue size", "dbd_agent_queue_size"),
    ("jobs_submitted", 1, "", "Jobs submitted", "jobs_submitted"),
    ("jobs_started", 1, "", "Jobs started", "jobs_started"),
    ("jobs_completed", 1, "", "Jobs completed", "jobs_completed"),
    ("jobs_canceled", 1, "", "Jobs canceled", "jobs_canceled"),
    ("jobs_failed_internal", 1, "", "Jobs failed", "jobs_failed"),
    ("main_last_cycle", _MICRO, "main", "Last cycle", "schedule_cycle_last"),
    ("main_max_cycle", _MICRO, "main", "Max cycle", "schedule_cycle_max"),
    ("main_mean_cycle", _MICRO, "main", "Mean cycle", "schedule_cycle_mean"),
    ("main_cycles", 1, "main", "Total cycles", "schedule_cycle_total"),
    ("main_queue_length", 1, "main", "Last queue length", "schedule_queue_length"),
    ("backfill_last_cycle", _MICRO, "backfill", "Last cycle", "bf_cycle_last"),
    ("backfill_max_cycle", _MICRO, "backfill", "Max cycle", "bf_cycle_max"),
    ("backfill_mean_cycle", _MICRO, "backfill", "Mean cycle", "bf_cycle_mean"),
    ("backfill_cycles", 1, "backfill", "Total cycles", "bf_cycle_counter"),
    ("backfill_last_depth", 1, "backfill", "Last depth cycle", "bf_last_depth"),
    ("backfill_queue_length", 1, "backfill", "Last queue length", "bf_queue_len"),
    (
        "backfilled_jobs",
        1,
        "backfill",
        "Total backfilled jobs (since last slurm start)",
        "bf_backfilled_jobs",
    ),
)
"""Our name, the factor that makes base units, section and label in the text, key in the JSON."""
_TEXT = {(section, label): (name, factor) for name, factor, section, label, _ in _VALUES}

_RPC = re.compile(r"\s*(\S+)\s+\(\s*\d+\)\s+count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)")


def parse_text(output: bytes) -> Diagnostics:
    """Read the text of sdiag.  Raises `SourceError` if nothing of it is recognised."""
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
        meaning = _TEXT.get((section, label.strip()))
        if colon and meaning and re.fullmatch(r"\d+", text.strip()):
            values[meaning[0]] = int(text) * meaning[1]
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


def parse_json(answer: Object) -> Diagnostics:
    """Read the JSON.  Raises `SourceError` if there are no statistics in it."""
    statistics = answer.get("statistics")
    if not isinstance(statistics, dict):
        raise SourceError("there are no statistics in the answer")
    values = {
        name: value * factor
        for name, factor, _, _, key in _VALUES
        if (value := number(statistics.get(key))) is not None
    }
    return Diagnostics(
        values,
        moment(statistics.get("req_time_start")),
        _listed_rpcs(statistics.get("rpcs_by_message_type"), "message_type"),
        _listed_rpcs(statistics.get("rpcs_by_user"), "user"),
    )


def _listed_rpcs(listed: Any, name: str) -> tuple[RpcCount, ...]:
    rpcs = []
    for record in objects(listed):
        count, total = number(record.get("count")), number(record.get("total_time"))
        if text(record.get(name)) and count is not None:
            rpcs.append(RpcCount(text(record[name]), count, (total or 0) * _MICRO))
    return tuple(rpcs)
