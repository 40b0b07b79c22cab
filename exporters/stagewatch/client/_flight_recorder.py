"""Has PyTorch's flight recorder make the pipe through which `stagewatch run` asks for dumps.

`DumpPipe` of PyTorch's ProcessGroupNCCL.hpp makes none without this variable before 2.13, though
some releases keep 2,000 collectives all the same.  Later ones warn of it, and do not need it.
"""

from __future__ import annotations

import os
from types import ModuleType

PIPE, BUFFER = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
COLLECTIVES = "2000"
"""The number that PyTorch keeps by default."""
_ALSO = "TORCH_FR_BUFFER_SIZE"
_WITHOUT = (2, 13)
"""The first release known to make the pipe without it."""


def make_pipe(torch: ModuleType) -> None:
    """Set the variable if it is needed and the user has not set it; PyTorch reads it when the first
    process group is made.  Never raises."""
    environ = os.environ
    if environ.get(PIPE) and not environ.keys() & {BUFFER, _ALSO} and _release(torch) < _WITHOUT:
        environ[BUFFER] = COLLECTIVES


def _release(torch: ModuleType) -> tuple[int, ...]:
    """The release as (2, 12); the latest one if the version cannot be parsed."""
    numbers = str(getattr(torch, "__version__", "")).split(".")[:2]
    return tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else _WITHOUT
