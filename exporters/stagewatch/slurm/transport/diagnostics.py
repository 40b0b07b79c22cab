"""The controller's diagnostics, from `sdiag`.

https://slurm.schedmd.com/sdiag.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stagewatch.core.errors import SourceError
from stagewatch.slurm.model import Diagnostics, number

_SECTIONS = (
    ("Main schedule statistics", "main"),
    ("Backfilling stats", "backfill"),
    ("Remote Procedure Call statistics by message type", "requests"),
    ("Remote Procedure Call statistics by user", "other"),
    ("Pending RPC", "other"),
)
_MICRO = 1e-6
_CYCLES = {
    ("main", "Last cycle"): "schedule_cycle_last",
    ("backfill", "Last cycle"): "bf_cycle_last",
}
"""Names for durations; labels above the first section are names in other letters."""
_REQUESTS = re.compile(r"\s*(.+?)\s*\(\s*\d+\)\s+count:(\d+)\s+ave_time:\d+\s+total_time:\d+")


def parse_text(output: bytes) -> Diagnostics:
    """Read the text of sdiag. Raises `SourceError` if it recognises nothing."""
    values: dict[str, float] = {}
    requests: dict[str, int] = {}
    for section, line in _by_section(output.decode(errors="replace")):
        if section == "requests":
            if (match := _REQUESTS.match(line)) and (calls := number(match[2])) is not None:
                requests[match[1]] = calls
        elif match := re.fullmatch(r"(\s*)(.*\w\)?)\s*:\s*(\d+)\s*", line):
            value = number(match[3])
            cycle = _CYCLES.get((section, match[2]))
            if value is not None and cycle:
                values[cycle] = value * _MICRO
            elif value is not None and not section and not match[1]:
                values[match[2].lower().replace(" ", "_")] = value
    if not values:
        raise SourceError(f"sdiag printed something unknown: {output[:80]!r}")
    return Diagnostics(values, requests)


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
