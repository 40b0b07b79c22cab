"""`/events`: copies of the stage records on this node, rings of events included, as JSON.

    {"node": "n1", "left_out": 0, "faults": [{"id": ..., "fault_type": ..., ...}],
     "ranks": [{"job_id": "540", "role": "train", "rank": 3, "life": "alive", "pid": 7,
                "boot_ns": ..., "wall_ns": ..., "file": "..."}]}

`file` is the record in base64, as `stagewatch.record` lays it out: the agent only copies, so that
thousands of events cost its scrapes nothing.  `stagewatch trace` reads the page.
"""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import asdict
from pathlib import Path

from stagewatch.core.context import Route
from stagewatch.core.errors import NoData, SourceError
from stagewatch.faults.markers import read_markers
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.records import Life, Recording

MAX_RANKS = 64
"""Each takes 250 kB of the page."""


def events_page(ranks: RankDirectory, fault_dir: Path, node: str) -> Route:
    """The page, made by one thread at a time."""
    making = threading.Lock()

    def make() -> tuple[str, bytes]:
        with making:
            return "application/json", _page(ranks, fault_dir, node)

    return make


def _page(ranks: RankDirectory, fault_dir: Path, node: str) -> bytes:
    try:
        records = ranks.look().records
    except SourceError as error:
        raise NoData(str(error)) from error
    first = sorted(records, key=lambda record: (record.life is not Life.ALIVE, -record.created))
    shown = [_rank(copy) for one in first[:MAX_RANKS] if (copy := ranks.recording(one))]
    try:
        faults = read_markers(fault_dir)[0]
    except (NoData, SourceError):
        faults = []
    head = json.dumps(
        {
            "node": node,
            "left_out": max(0, len(records) - MAX_RANKS),
            "faults": [asdict(fault) for fault in faults],
        }
    )
    return b"".join((head[:-1].encode(), b', "ranks": [', b", ".join(shown), b"]}"))


def _rank(copy: Recording) -> bytes:
    told = {
        "job_id": copy.record.job_id,
        "role": copy.record.role,
        "rank": copy.record.rank,
        "life": copy.record.life.value,
        "pid": copy.record.pid,
        "boot_ns": copy.boot_ns,
        "wall_ns": copy.wall_ns,
    }
    file = base64.b64encode(copy.raw)
    return json.dumps(told)[:-1].encode() + b', "file": "' + file + b'"}'
