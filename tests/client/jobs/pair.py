"""One of two ranks that runs given lines: `python -m tests.client.jobs.pair DIR BACKEND WHEN`.

The lines (`code.py` in the directory) see `torch`, `dist`, `rank`, `record()` (of this rank),
`begin(number)` (make the default group), `start()` (what was put off) and `say(...)`, whose
arguments go to `RANK.json`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import stagewatch
from stagewatch.client import _api
from stagewatch.core.processes import die_with_parent
from stagewatch.ranks.records import RankRecord, parse


def main(directory: Path, backend: str, begins: str) -> None:
    """Run the lines once both ranks are there."""
    die_with_parent()
    import torch
    import torch.distributed as dist

    if backend == "fake":
        import torch.testing._internal.distributed.fake_pg  # registers the backend
    rank = int(os.environ["RANK"])

    def start() -> None:
        if begins != "first":
            stagewatch.init(job_id="pair")
        if begins == "watched late":
            stagewatch.watch_collectives(dist)

    def begin(number: int) -> None:
        method = f"file://{directory}/rendezvous{number}"
        if backend == "fake":
            store: Any = torch.testing._internal.distributed.fake_pg.FakeStore()
            dist.init_process_group("fake", store=store, rank=rank, world_size=2)
        else:
            dist.init_process_group(backend, init_method=method, rank=rank, world_size=2)

    def record() -> RankRecord:
        recorder: Any = _api._recorder
        return parse(recorder.path.read_bytes())

    def say(*what: Any) -> None:
        part = directory / f"{rank}.part"
        part.write_text(json.dumps(what))
        part.rename(directory / f"{rank}.json")

    if begins == "first":
        stagewatch.init(job_id="pair")
    if begins != "watched late":
        stagewatch.watch_collectives(dist)
    begin(0)
    names = {"torch": torch, "dist": dist, "rank": rank, "record": record}
    names |= {"begin": begin, "start": start, "say": say}
    exec((directory / "code.py").read_text(), names)
    if backend == "gloo":
        dist.barrier()  # gloo's peers go only when both are done
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
