"""A GPU whose memory is taken."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass

from stagewatch.core import words
from stagewatch.core.config import option
from stagewatch.core.config import size as parse_size
from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.faults.driver import LIBRARY
from stagewatch.faults.kinds.hogs import Helper
from stagewatch.faults.plan import Kind, Plan, Request

_GPU = re.compile(r"\d{1,3}|(?:GPU|MIG)-[0-9A-Za-z/-]{1,64}")


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Options of `gpu-memory`."""

    size: int = option(0, "how much, as 4GiB; must be given", parse=parse_size)
    leave: int = option(0, "refuse if less than this would stay free", parse=parse_size)


def _memory(request: Request, options: MemoryOptions) -> Plan:
    gpu = request.target
    if not _GPU.fullmatch(gpu):
        raise MEMORY.refuse_target(request)
    if not options.size:
        raise ConfigError("--size must be given, and more than nothing")
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise StagewatchError(
            f"there is no GPU to be used here: the NVIDIA driver's {LIBRARY} cannot be loaded"
        ) from error
    numbers = map(str, (options.size, options.leave, request.tool_seconds))
    argv = (sys.executable, "-m", "stagewatch.faults.driver", gpu, *numbers)
    holder = Helper(request.id, argv, str(request.log))
    return Plan((holder,), f"{words.size(options.size)} of GPU {gpu}")


MEMORY = Kind(
    name="gpu-memory",
    help="hold memory of a GPU",
    target="the GPU's index as nvidia-smi shows it, or its UUID",
    plan=_memory,
    options=MemoryOptions,
)
