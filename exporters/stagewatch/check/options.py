"""What `stagewatch check` can be told."""

from __future__ import annotations

from dataclasses import dataclass

from stagewatch.core.config import address, listing, option, text

SKIPPABLE = (
    "agent",
    "driver",
    "gpu_count",
    "gpu_type",
    "xid",
    "ecc",
    "remap",
    "recovery",
    "temperature",
    "throttle",
    "nvlink",
    "fabric",
    "pcie",
    "persistence",
    "orphans",
    "clock",
    "mounts",
)
"""Every check, in the order in which their reasons are given."""


def check_name(value: object) -> str:
    """the name of a check (`stagewatch check --list` shows them)"""
    if value not in SKIPPABLE:
        raise ValueError
    return str(value)


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Options of `stagewatch check`."""

    agent: tuple[str, int] = option(
        ("127.0.0.1", 9947),
        "address of this node's agent; without one the driver is asked directly",
        parse=address,
    )
    timeout: float = option(1.5, "answer within this time, whatever hangs")
    skip: tuple[str, ...] = option((), "checks to leave out", parse=listing(check_name))
    gpus: int = option(0, "GPUs this node must have; 0: as many as are on its PCI bus")
    gpu_type: str = option("", "model they must be, as in gpu_info's type (h200, a6000)")
    xid_window: float = option(3600.0, "how long an XID counts against the node")
    driver_stuck: float = option(60.0, "how long the driver may hang before the node is drained")
    clock_offset: float = option(0.01, "most the clock may be off")
    mounts: tuple[str, ...] = option(
        (), "directories that must be mounted and answer", parse=listing(text)
    )
    orphan_age: float = option(60.0, "how long a process may hold a GPU after its job's end")
