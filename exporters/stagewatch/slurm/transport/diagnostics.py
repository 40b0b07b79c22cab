"""The controller's diagnostics, from `sdiag`, `sdiag --json` (23.02) or slurmrestd's /diag.

https://slurm.schedmd.com/sdiag.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stagewatch.core.errors import SourceError
from stagewatch.slurm.model import Diagnostics, Object, RpcCount, number, objects, text

_SECTIONS = (
    ("Main schedule statistics", "main"),
    ("Backfilling stats", "backfill"),
    ("Remote Procedure Call statistics by message type", "rpc_type"),
    ("Remote Procedure Call statistics by user", "rpc_user"),
    ("Pending RPC", "pending"),
)
_MICRO = 1e-6
_KEYS = {
    ("main", "Last cycle"): "schedule_cycle_last",
    ("backfill", "Last cycle"): "bf_cycle_last",
}
"""JSON names for labels in the text; labels above the first section differ only in spelling."""
_RPC = re.compile(r"\s*(.+?)\s*\(\s*\d+\)\s+count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)")


def parse_text(output: bytes) -> Diagnostics:
    """Read the text of sdiag. Raises `SourceError` if it recognises nothing."""
    values: dict[str, float] = {}
    rpcs: dict[str, list[RpcCount]] = {"rpc_type": [], "rpc_user": []}
    for section, line in _by_section(output.decode(errors="replace")):
        if section in rpcs:
            if (match := _RPC.match(line)) and (calls := number(match[2])) is not None:
                seconds = (number(match[3]) or 0) * _MICRO
                rpcs[section].append(RpcCount(match[1], calls, seconds))
        elif match := re.fullmatch(r"(\s*)(.*\w\)?)\s*:\s*(\d+)\s*", line):
            spelt = "" if section or match[1] else match[2].lower().replace(" ", "_")
            key = _KEYS.get((section, match[2]), spelt)
            if key and (value := number(match[3])) is not None:
                values[key] = _in_seconds(key, value)
    if not values:
        raise SourceError(f"sdiag printed something unknown: {output[:80]!r}")
    return Diagnostics(values, tuple(rpcs["rpc_type"]), tuple(rpcs["rpc_user"]))


def _in_seconds(key: str, value: int) -> float:
    return value * _MICRO if key in _KEYS.values() else value


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
    return Diagnostics(
        {
            key: _in_seconds(key, value)
            for key, shown in statistics.items()
            if (value := number(shown)) is not None
        },
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
