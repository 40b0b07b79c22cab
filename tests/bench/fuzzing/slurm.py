"""What Slurm's commands and slurmrestd answer: in text, and in the JSON of each version."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagewatch.core.errors import StagewatchError
from stagewatch.slurm.transport import accounting, diagnostics, text
from stagewatch.slurm.transport import json as slurm_json
from tests.bench.fuzzing.mutations import mutated_json
from tests.bench.fuzzing.target import Target

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"
REFUSED = (StagewatchError,)
TEXT: tuple[tuple[str, Callable[[bytes], object], float], ...] = (
    ("sdiag.txt", diagnostics.parse_text, 0.03),
    ("sacctmgr_list_event.txt", accounting.parse_events, 0.02),
    ("scontrol_ping.txt", text.parse_ping, 0.01),
)
"""Captures of a real Slurm."""
JSON: tuple[tuple[str, Callable[[Any], object], float], ...] = (
    ("jobs", slurm_json.jobs, 0.04),
    ("nodes", slurm_json.nodes, 0.04),
    ("slurmdb_jobs", slurm_json.ended_jobs, 0.03),
    ("ping", slurm_json.ping, 0.01),
    ("diag", diagnostics.parse_json, 0.02),
)
"""Parts of the documents that stand for each version from 22.05 to 26.05."""
NODES = (
    b"NodeName=n1 Arch=x86_64 CoresPerSocket=8 Gres=gpu:h100:8(S:0-1) NodeAddr=n1 NodeHostName=n1"
    b" State=IDLE+DRAIN Partitions=gpu,all BootTime=2026-01-01T00:00:00 SlurmdStartTime=None"
    b" CfgTRES=cpu=8,gres/gpu=8 AllocTRES=gres/gpu=1 Reason=bad fan [root@2026-01-01T00:00:00]\n",
)
CLAIMS = (
    b"JobId=7 JobName=x UserId=ada(1000) JobState=RUNNING Nodes=n[1-2] CPU_IDs=0-3 Mem=0"
    b" GRES=gpu:h100:2(IDX:0-1) Nodes=n3 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:3) MinCPUsNode=1\n",
)


def targets() -> list[Target]:
    """One for each command's text, and one for each list of the JSON."""
    capture = FIXTURES / "captures" / "22.05.8"
    documents = [json.loads(file.read_text()) for file in sorted(FIXTURES.glob("*-v0.0.*.json"))]
    return [
        Target("squeue", squeue(), text.parse_jobs, 0.03, REFUSED),
        Target("scontrol nodes", NODES, text.parse_nodes, 0.02, REFUSED),
        Target("scontrol jobs", CLAIMS, text.parse_claims, 0.02),
        Target("sacct", sacct(), accounting.parse_jobs, 0.02, REFUSED),
        *(
            Target(name, ((capture / name).read_bytes(),), parse, weight, REFUSED)
            for name, parse, weight in TEXT
        ),
        *(
            Target(
                f"JSON {part}",
                tuple(json.dumps(document[part]).encode() for document in documents),
                lambda data, read=read, part=part: read(slurm_json.document(data, part)),
                weight,
                REFUSED,
                mutated_json,
            )
            for part, read, weight in JSON
        ),
    ]


def squeue() -> tuple[bytes, ...]:
    """A record of the queue."""
    fields = (
        "42", "N/A", "RUNNING", "None", "gpu", "ada", "physics", "2", "1", "*", "n[1-2]",
        "cpu=8,gres/gpu=2,gres/gpu:h100=2", "gres/gpu:1", "N/A", "N/A", "N/A",
        "2026-01-01T00:00:00", "2026-01-01T00:00:01", "2026-01-01T00:00:02", "Unknown", "N/A", "0",
        "0:0", "N/A",
    )  # fmt: skip
    return ((text.FIELD.join(fields) + text.RECORD).encode(),)


def sacct() -> tuple[bytes, ...]:
    """A line of accounting."""
    fields = (
        "42", "42_[1-5%2]", "COMPLETED", "0:0", "1700000000", "1700000001", "1700000002",
        "1700000003", "gpu", "ada", "physics", "gres/gpu=1",
    )  # fmt: skip
    return ((text.FIELD.join(fields) + "\n").encode(),)
