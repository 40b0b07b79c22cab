"""What the tests of the GPU reader share."""

from __future__ import annotations

from collections.abc import Callable

from stagewatch.gpu.reader import GpuReader

FAST = ("fast",)
FOREVER = 3600.0
Make = Callable[..., GpuReader]
