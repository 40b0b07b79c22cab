"""Writes, syncs and reads back a file, in a process of its own: the canary of `storage`, once."""

from __future__ import annotations

import json
import os
import sys

from stagewatch.core.children.worker import Report
from stagewatch.storage import canary_child

CANARY_BYTES, LARGE_BYTES = 64 << 10, 64 << 20


def main() -> None:
    """Print a line of JSON: bytes a second written, or the error."""
    arguments = json.loads(sys.argv[2])
    quiet = Report(os.open(os.devnull, os.O_WRONLY))
    wanted = {
        "directory": arguments["directory"], "bytes": CANARY_BYTES, "floor_bytes": 1 << 30,
        "large_bytes": LARGE_BYTES, "large_interval": 1.0,
    }  # fmt: skip
    found = canary_child.run(wanted, None, quiet)
    told: dict[str, object]
    if error := found.get("error"):
        told = {"error": f"{error['phase']}: {error['error']}"}
    elif "bandwidth" in found:
        told = {"value": found["bandwidth"]["write"], "same": True}
    else:
        told = {"skipped": "less than 1 GiB would be left free"}
    print("\n" + json.dumps(told), flush=True)
