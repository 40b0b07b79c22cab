"""Proposals, and cases that hold them."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from stagewatch.judgement import case_file
from stagewatch.judgement.case_file import CaseFile
from stagewatch.judgement.hardware import Proposal


def proposal(node: str = "h1", **changes: Any) -> Proposal:
    """A sure one, of now."""
    now = float(int(time.time()))
    made = Proposal(
        cluster="c",
        job_id="540",
        node=node,
        role="train",
        rank=5,
        uuid="GPU-5",
        evidence="awaited",
        confidence="sure",
        witness="GPUXidCritical",
        code="79",
        why="XID 79; rank 5 of job 540 has not entered the operation that the others wait in",
        since=now - 400,
        time=now,
        until=now + 3600,
    )
    return dataclasses.replace(made, **changes)


def case_of(file: Path, *proposals: Proposal) -> Path:
    """A case file that holds them."""
    content = case_file.as_json(CaseFile("c", "540", (), proposals=proposals))
    file.write_text(json.dumps(content))
    return file
