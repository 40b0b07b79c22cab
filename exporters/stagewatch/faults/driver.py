"""Takes memory of a GPU in a process of its own: a broken driver may never answer.

`python -m stagewatch.faults.driver GPU BYTES LEAVE SECONDS` keeps it until the process ends.  GPU
is an index or UUID.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

LIBRARY = "libcuda.so.1"
_PIECE = 1 << 30


class Refused(Exception):
    """The driver refused; the text says what."""


def hold(gpu: str, wanted: int, leave: int, seconds: int) -> None:
    """Take memory, say so, and wait; the kernel ends this process after the seconds.

    Calls the driver's own library, so that neither CUDA's runtime nor torch is needed.
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


if __name__ == "__main__":
    try:
        hold(sys.argv[1], *map(int, sys.argv[2:5]))
    except (Refused, OSError, AttributeError) as error:
        sys.exit(str(error))
