"""The controller's diagnostics, from `sdiag`.  https://slurm.schedmd.com/sdiag.html

`Jobs failed` there counts jobs that failed for slurmd or internal reasons only, not jobs whose
program failed; it is exported under a name that says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stagewatch.core.errors import SourceError
from stagewatch.slurm.model import Diagnostics, RpcCount

_SECTIONS = (
    ("Main schedule statistics", "main"),
    ("Backfilling stats", "backfill"),
    ("Remote Procedure Call statistics by message type", "rpc_type"),
    ("Remote Procedure Call statistics by user", "rpc_user"),
    ("Pending RPC", "pending"),
)
_MICRO = 1e-6
VALUES: dict[tuple[str, str], tuple[str, float]] = {
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


def parse(output: bytes) -> Diagnostics:
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
        known = VALUES.get((section, label.strip()))
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
