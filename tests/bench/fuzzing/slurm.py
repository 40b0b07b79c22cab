"""What Slurm's commands print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stagewatch.core.errors import StagewatchError
from stagewatch.slurm.transport import accounting, diagnostics, text
from tests.bench.fuzzing.target import Target

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"
REFUSED = (StagewatchError,)
TEXT: tuple[tuple[str, Callable[[bytes], object], float], ...] = (
    ("sdiag.txt", diagnostics.parse_text, 0.03),
    ("sacctmgr_list_event.txt", accounting.parse_events, 0.02),
    ("scontrol_ping.txt", text.parse_ping, 0.01),
)
"""Captures of a real Slurm."""
NODES = (
    b"NodeName=n1 Arch=x86_64 CoresPerSocket=8 Gres=gpu:h100:8(S:0-1) NodeAddr=n1 NodeHostName=n1"
    b" State=IDLE+DRAIN Partitions=gpu,all BootTime=2026-01-01T00:00:00 SlurmdStartTime=None"
    b" CfgTRES=cpu=8,gres/gpu=8 AllocTRES=gres/gpu=1 Reason=bad fan [root@2026-01-01T00:00:00]\n",
)


def targets() -> list[Target]:
    """One for each command."""
    capture = FIXTURES / "captures" / "22.05.8"
    return [
        Target("squeue", squeue(), text.parse_jobs, 0.03, REFUSED),
        Target("scontrol nodes", NODES, text.parse_nodes, 0.02, REFUSED),
        Target("sacct", sacct(), accounting.parse_jobs, 0.02, REFUSED),
        *(
            Target(name, ((capture / name).read_bytes(),), parse, weight, REFUSED)
            for name, parse, weight in TEXT
        ),
    ]


def squeue() -> tuple[bytes, ...]:
    """A record of the queue."""
    fields = (
        "42", "N/A", "RUNNING", "None", "gpu", "ada", "physics", "2", "1", "*", "n[1-2]",
        "cpu=8,gres/gpu=2,gres/gpu:h100=2", "gres/gpu:1", "N/A", "N/A", "N/A",
        "2026-01-01T00:00:00", "2026-01-01T00:00:01", "2026-01-01T00:00:02", "Unknown", "N/A", "0",
        "N/A",
    )  # fmt: skip
    return ((text.FIELD.join(fields) + text.RECORD).encode(),)


def sacct() -> tuple[bytes, ...]:
    """A line of accounting."""
    fields = (
        "42", "42_[1-5%2]", "COMPLETED", "0:0", "1700000000", "1700000001", "1700000002",
        "1700000003", "gpu", "ada", "physics", "gres/gpu=1",
    )  # fmt: skip
    return ((text.FIELD.join(fields) + "\n").encode(),)
