"""The whole exposition of two GPUs, one of them with a MIG instance."""

from __future__ import annotations

import time

from stagewatch.core.exposition import Samples
from stagewatch.gpu.collector import TIER_DURATION
from stagewatch.gpu.nvml.gpm import SHORTEST
from tests.fakes.nvml import FakeNvml
from tests.golden import assert_golden
from tests.gpu.gpu_scene import MakeGpu

RISING = (74, 83, 138, 139, 197, 198)
"""Fields that count on while a test runs."""


def test_the_whole_exposition(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    nvml.replace(
        {
            "count": "2",
            "driver": "590.48.01",
            "gpu.1.mig": "1",
            "gpu.0.processes": "4242:1073741824",
            **{f"field.{field}": str(10**12) for field in RISING},
        }
    )
    collector = make_gpu()
    collector.collect()
    time.sleep(SHORTEST)
    assert_golden(without_times(collector.collect()), "gpu.prom")


def without_times(samples: Samples) -> Samples:
    """What does not depend on how fast the machine is."""
    return Samples({m: one for m, one in samples.families.items() if m is not TIER_DURATION})
