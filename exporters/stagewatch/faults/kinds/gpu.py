"""Memory of a GPU that somebody else holds, and a process on a GPU that is gone."""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import sys

from stagewatch.errors import ConfigError, SourceError, StagewatchError
from stagewatch.faults.driver import LIBRARY
from stagewatch.faults.kinds.hogs import Helper
from stagewatch.faults.kinds.process import kill_plan
from stagewatch.faults.plan import Kind, Plan, Request, human, size
from stagewatch.faults.processes import Identity, refuse_vital
from stagewatch.faults.tools import Commands

_GPU = re.compile(r"\d{1,3}|(?:GPU|MIG)-[0-9A-Za-z/-]{1,64}")
_DRIVER_SECONDS = 20.0


def _require_driver(library: str) -> None:
    try:
        ctypes.CDLL(library)
    except OSError as error:
        raise StagewatchError(
            f"there is no GPU to be used here: the NVIDIA driver's {library} cannot be loaded"
        ) from error


def _memory_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", required=True, metavar="SIZE", help="how much, as 4GiB")
    parser.add_argument(
        "--leave",
        default="0",
        metavar="SIZE",
        help="refuse if less than this would be left free [default: 0]",
    )


def _memory(request: Request) -> Plan:
    gpu = request.target
    if not _GPU.fullmatch(gpu):
        raise ConfigError(f"--target {gpu!r}: must be {MEMORY.target}")
    wanted = size("--size", request.options.size)
    leave = size("--leave", request.options.leave)
    if not wanted:
        raise ConfigError("--size 0: must be more than nothing")
    _require_driver(LIBRARY)
    numbers = (str(wanted), str(leave), str(request.tool_seconds))
    helper = Helper(
        request.id,
        (sys.executable, "-m", "stagewatch.faults.driver", "hold", *numbers),
        str(request.log),
        (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", gpu)),
    )
    return Plan((helper,), f"{human(wanted)} of GPU {gpu}")


def _process_kill(request: Request) -> Plan:
    match = re.fullmatch(rf"({_GPU.pattern})(?::(\d{{1,10}}))?", request.target)
    if not match:
        raise ConfigError(f"--target {request.target!r}: must be {PROCESS_KILL.target}")
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
    argv = (sys.executable, "-m", "stagewatch.faults.driver", "processes", gpu)
    try:
        said = Commands(id="", environ=dict(os.environ)).run(*argv, limit=_DRIVER_SECONDS)
        return sorted(map(int, said.stdout.split()))
    except SourceError as error:
        raise StagewatchError(f"the NVIDIA driver does not tell who uses it: {error}") from error


MEMORY = Kind(
    name="gpu-memory",
    help="hold memory of a GPU, where there is one",
    target="the GPU's index as nvidia-smi shows it, or its UUID",
    plan=_memory,
    add_options=_memory_options,
)
PROCESS_KILL = Kind(
    name="gpu-process-kill",
    help="kill a process that computes on a GPU (SIGKILL), where there is one",
    target="the GPU's index or UUID, as 0, if one process computes there; or 0:PID",
    plan=_process_kill,
    lasts=False,
)
