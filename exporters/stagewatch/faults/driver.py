"""Programs that call the NVIDIA driver in a child process: a broken driver may never answer.

`python -m stagewatch.faults.driver hold GPU BYTES LEAVE SECONDS` holds memory of a GPU until
it is ended; `... processes GPU` prints who computes there.  GPU is an index or UUID.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

LIBRARY = "libcuda.so.1"
_PIECE = 1 << 30


class Refused(Exception):
    """The driver has refused; the text says what."""


def hold(gpu: str, wanted: int, leave: int, seconds: int) -> None:
    """Take memory, say so, and wait to be ended; the kernel ends us after the seconds.

    Calls the driver's own library, so that neither CUDA's runtime nor torch need be installed.
    https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MEM.html
    """
    signal.alarm(seconds)
    os.environ |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu}
    cuda = ctypes.CDLL(LIBRARY)
    _call(cuda, "cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    _call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call(cuda, "cuCtxSetCurrent", context)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    if wanted + leave > free.value:
        raise Refused(
            f"{free.value >> 20} MiB are free on the GPU: too little for {wanted >> 20} MiB with "
            f"{leave >> 20} MiB to be left (--leave)"
        )
    for done in range(0, wanted, _PIECE):
        piece = ctypes.c_uint64()
        size = ctypes.c_size_t(min(_PIECE, wanted - done))
        _call(cuda, "cuMemAlloc_v2", ctypes.byref(piece), size)
    print(f"holds {wanted} bytes", flush=True)
    while True:
        signal.pause()


def _call(cuda: ctypes.CDLL, name: str, *arguments: object) -> None:
    status: int = getattr(cuda, name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        cuda.cuGetErrorName(status, ctypes.byref(text))
        raise Refused(f"{name}: {(text.value or b'error').decode()} ({status})")


def list_processes(gpu: str) -> None:
    """Print the numbers of a GPU's compute processes, one a line."""
    try:
        import pynvml as nvml
    except ModuleNotFoundError as error:
        raise Refused("needs pynvml: pip install 'stagewatch[node]'") from error
    try:
        nvml.nvmlInit()
        if gpu.isdigit():
            device = nvml.nvmlDeviceGetHandleByIndex(int(gpu))
        else:
            device = nvml.nvmlDeviceGetHandleByUUID(gpu)
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(device):
            print(process.pid)
    except nvml.NVMLError as error:
        raise Refused(f"GPU {gpu}: {error}") from error


if __name__ == "__main__":
    try:
        if sys.argv[1] == "hold":
            hold(sys.argv[2], *map(int, sys.argv[3:6]))
        else:
            list_processes(sys.argv[2])
    except (Refused, OSError, AttributeError) as error:
        sys.exit(str(error))
