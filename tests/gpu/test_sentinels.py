"""What NVML answers in place of a number never reaches a scrape: sentinels, blanks, NaN."""

from __future__ import annotations

import time
from collections.abc import Iterator

from stagewatch.gpu.nvml.fields import fields_by_tier
from stagewatch.gpu.nvml.gpm import METRICS as GPM_METRICS
from stagewatch.gpu.nvml.gpm import SHORTEST
from tests.fake_clock import Clock
from tests.fakes.nvml import FakeNvml
from tests.gpu.gpu_scene import MakeGpu, Series, metrics

RAW_BLANKS = ("4294967295", "2147483632", "2147483647")
WIDE_BLANKS = ("18446744073709551615", "9223372036854775792", "9223372036854775807")
READINGS = (
    "temperature", "temperature_margin", "power", "power_limit", "performance_state",
    "persistence_mode", "utilization", "clock.sm", "clock.memory", "clock.graphics", "clock.video",
    "pcie_generation", "pcie_width", "pcie_generation_max", "pcie_width_max",
    "temperature_threshold.0", "temperature_threshold.1", "temperature_threshold.2",
    "fabric.state", "fabric.status", "fabric.health", "nvlink.3",
    "sram_threshold", "banks.max", "banks.high", "banks.none", "throttle",
)  # fmt: skip
WIDE_READINGS = (
    "memory_total", "memory_used", "throttle",
    *(
        f"ecc.{memory}.{kind}.{scope}"
        for memory in ("dram", "sram")
        for kind in ("corrected", "uncorrected")
        for scope in ("volatile", "aggregate")
    ),
)  # fmt: skip
FIELD_IDS = sorted({field.id for tier in fields_by_tier("590.1").values() for field in tier})
STEADY = {
    "gpu.2.processes": "4242:1073741824",
    **{f"field.{field}": "1000000000000" for field in (74, 83, 138, 139, 197, 198)},
}
"""Readings that would otherwise rise while the test runs."""
MOVING = {"gpu_driver_unsupported", "gpu_driver_call_errors_total"}


FIELD_BLANKS = {
    0: ("nan", "inf", "-inf", "140737488355328", "140737488355330"),
    1: RAW_BLANKS,
    3: WIDE_BLANKS,
    4: ("-1", *WIDE_BLANKS[1:]),
    5: ("-1", *RAW_BLANKS[1:]),
}
"""By the type of a field's value: floating, 32 and 64 bits, with and without a sign."""
PROFILE_BLANKS = ("nan", "inf", "-1", "140737488355328")


def field(id: int, kind: int, value: str) -> dict[str, str]:
    return {f"gpu.2.field.{id}.type": str(kind), f"gpu.2.field.{id}": value}


def one_everywhere() -> Iterator[dict[str, str]]:
    """Control lines that make everything of a kind that GPU 2 answers the same sentinel."""
    for value in RAW_BLANKS:
        yield {f"gpu.2.{name}": value for name in READINGS}
    for value in WIDE_BLANKS:
        processes = {"gpu.2.processes": f"4242:{value}"}
        yield {f"gpu.2.{name}": value for name in WIDE_READINGS} | processes
    for kind, blanks in FIELD_BLANKS.items():
        for value in blanks:
            yield {k: v for id in FIELD_IDS for k, v in field(id, kind, value).items()}
    for value in PROFILE_BLANKS:
        yield {f"gpu.2.gpm.{id}": value for id in GPM_METRICS}


def test_no_sentinel_ever_reaches_a_scrape(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    """What a scrape shows beside sentinels is what it shows without them, or nothing."""
    nvml.replace(STEADY)
    clock = Clock()
    collector = make_gpu(clock)
    metrics(collector)
    time.sleep(SHORTEST)
    healthy = readings(metrics(collector))
    assert {dict(key)["gpu"] for _, key in healthy} == set("01234567")

    for lines in one_everywhere():
        nvml.replace(STEADY | lines)
        if any(".gpm." in line for line in lines):
            time.sleep(SHORTEST)
        clock.now += 60  # every tier is due
        shown = readings(metrics(collector))
        assert shown.items() <= healthy.items(), shown.items() - healthy.items()
        assert not [key for key in healthy.keys() - shown.keys() if about(key) not in (None, "2")]


def readings(shown: Series) -> Series:
    """What GPUs are said to read, as far as it stands still."""
    return {
        (name, key): value
        for (name, key), value in shown.items()
        if name.startswith("gpu_") and name not in MOVING
    }


def about(key: tuple[str, frozenset[tuple[str, str]]]) -> str | None:
    """The GPU of a reading; None for one that is not there in every collection."""
    name, labels = key
    profiled = name.endswith(("_active_ratio", "_occupancy_ratio", "_per_second", "_cycles_total"))
    return None if profiled else dict(labels)["gpu"]
