"""Prints the compute processes of one GPU, a number a line: `python -m
stagewatch.faults.gpu_processes GPU`, with the GPU's index or UUID.

A process of its own, since a call of a broken driver may never return.
"""

from __future__ import annotations

import sys


def main(gpu: str) -> None:
    """Print them.  Ends with what is wrong where there is no such GPU."""
    try:
        import pynvml as nvml
    except ModuleNotFoundError:
        sys.exit("needs pynvml: pip install 'stagewatch[node]'")
    try:
        nvml.nvmlInit()
        if gpu.isdigit():
            device = nvml.nvmlDeviceGetHandleByIndex(int(gpu))
        else:
            device = nvml.nvmlDeviceGetHandleByUUID(gpu)
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(device):
            print(process.pid)
    except nvml.NVMLError as error:
        sys.exit(f"GPU {gpu}: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
