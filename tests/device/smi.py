"""What `nvidia-smi` tells of a GPU beside what the agent reads of it, field by field."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from stagewatch.gpu.readings import Reading

_MIB, _MHZ, _PERCENT = 1 << 20, 1e6, 0.01


@dataclass(frozen=True, slots=True)
class Field:
    """One that both have."""

    key: str
    """Of the agent's frame."""
    unit: float = 1.0
    """What one of nvidia-smi is in the agent's unit."""
    differs: float = 0.0
    """By how much both may differ, as they are read one after another; in the agent's unit."""


FIELDS = {
    "temperature.gpu": Field(Reading.TEMPERATURE.key(), differs=3),
    "temperature.memory": Field(Reading.MEMORY_TEMPERATURE.key(), differs=3),
    "power.draw": Field(Reading.POWER.key(), differs=60),
    "power.limit": Field(Reading.POWER_LIMIT.key()),
    "clocks.sm": Field(Reading.CLOCK.key("sm"), _MHZ, 300e6),
    "clocks.mem": Field(Reading.CLOCK.key("memory"), _MHZ, 300e6),
    "clocks.video": Field(Reading.CLOCK.key("video"), _MHZ, 300e6),
    "utilization.gpu": Field(Reading.UTILIZATION.key(), _PERCENT, 0.2),
    "memory.total": Field(Reading.MEMORY_TOTAL.key(), _MIB, 2 * _MIB),
    "memory.used": Field(Reading.MEMORY_USED.key(), _MIB, 64 * _MIB),
    "memory.reserved": Field(Reading.MEMORY_RESERVED.key(), _MIB, 2 * _MIB),
    "pcie.link.gen.current": Field(Reading.PCIE_GENERATION.key(), differs=5),
    "pcie.link.gen.max": Field(Reading.PCIE_GENERATION_MAX.key()),
    "pcie.link.width.current": Field(Reading.PCIE_WIDTH.key()),
    "pcie.link.width.max": Field(Reading.PCIE_WIDTH_MAX.key()),
    "ecc.errors.corrected.volatile.dram": Field(
        Reading.ECC_ERRORS.key("dram", "corrected", "volatile")
    ),
    "ecc.errors.uncorrected.volatile.dram": Field(
        Reading.ECC_ERRORS.key("dram", "uncorrected", "volatile")
    ),
}


def asked() -> dict[str, str]:
    """What it says of the first GPU.  Raises `OSError` or `CalledProcessError`."""
    names = ",".join(FIELDS)
    command = ["nvidia-smi", "--id=0", f"--query-gpu={names}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return dict(zip(FIELDS, map(str.strip, done.stdout.strip().split(",")), strict=True))


def compared(said: Mapping[str, str], read: Mapping[str, float]) -> list[tuple[str, str, str, str]]:
    """For each field: its name, what both say, and whether they agree."""
    rows = []
    for name, text in said.items():
        field = FIELDS[name]
        ours = read.get(field.key)
        try:
            theirs = float(text) * field.unit
        except ValueError:  # [N/A]
            agree = "neither has it" if ours is None else "nvidia-smi lacks it"
        else:
            near = ours is not None and abs(theirs - ours) <= field.differs
            agree = "the agent lacks it" if ours is None else "agree" if near else "DIFFER"
        rows.append((name, text, "" if ours is None else f"{ours / field.unit:g}", agree))
    return rows
