"""A GPU whose memory is taken, and a killed process on a GPU."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from dataclasses import dataclass

from stagewatch.core.config import option
from stagewatch.core.config import size as parse_size
from stagewatch.core.errors import ConfigError, SourceError, StagewatchError
from stagewatch.faults.driver import LIBRARY
from stagewatch.faults.kinds.hogs import Helper
from stagewatch.faults.kinds.process import kill_plan
from stagewatch.faults.plan import Kind, NoOptions, Plan, Request, human
from stagewatch.faults.processes import Identity, refuse_vital
from stagewatch.faults.tools import Commands

_GPU = re.compile(r"\d{1,3}|(?:GPU|MIG)-[0-9A-Za-z/-]{1,64}")
_DRIVER = (sys.executable, "-m", "stagewatch.faults.driver")
_DRIVER_SECONDS = 20.0


def _require_driver(library: str) -> None:
    try:
        ctypes.CDLL(library)
    except OSError as error:
        raise StagewatchError(
            f"there is no GPU to be used here: the NVIDIA driver's {library} cannot be loaded"
        ) from error


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
    _require_driver(LIBRARY)
    numbers = map(str, (options.size, options.leave, request.tool_seconds))
    holder = Helper(
        request.id,
        (*_DRIVER, "hold", gpu, *numbers),
        str(request.log),
    )
    return Plan((holder,), f"{human(options.size)} of GPU {gpu}")


def _process_kill(request: Request, _: NoOptions) -> Plan:
    match = re.fullmatch(rf"({_GPU.pattern})(?::(\d{{1,10}}))?", request.target)
    if not match:
        raise PROCESS_KILL.refuse_target(request)
    _require_driver("libnvidia-ml.so.1")
    pids = _processes(match[1])
    if match[2] and int(match[2]) not in pids:
        raise StagewatchError(f"process {match[2]} does not compute on GPU {match[1]}")
    if not pids:
        raise StagewatchError(f"no process computes on GPU {match[1]}")
    if not match[2] and len(pids) > 1:
        named = ", ".join(f"{match[1]}:{pid}" for pid in pids)
        raise StagewatchError(f"several processes compute on GPU {match[1]}: name one of {named}")
    identity = Identity.of(int(match[2] or pids[0]))
    refuse_vital(identity)
    return kill_plan(identity)


def _processes(gpu: str) -> list[int]:
    commands = Commands(id="", environ=dict(os.environ))
    try:
        answer = commands.run(*_DRIVER, "processes", gpu, limit=_DRIVER_SECONDS)
        return sorted(map(int, answer.stdout.split()))
    except SourceError as error:
        raise StagewatchError(f"the NVIDIA driver does not tell who uses it: {error}") from error


MEMORY = Kind(
    name="gpu-memory",
    help="hold memory of a GPU",
    target="the GPU's index as nvidia-smi shows it, or its UUID",
    plan=_memory,
    options=MemoryOptions,
)
PROCESS_KILL = Kind(
    name="gpu-process-kill",
    help="kill a process that computes on a GPU (SIGKILL)",
    target="the GPU's index or UUID, as 0, if one process computes there; or 0:PID",
    plan=_process_kill,
    options=NoOptions,
    lasts=False,
)
