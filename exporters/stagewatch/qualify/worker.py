"""Measures one thing on one device and prints a line of JSON: run as a file, by any Python.

It needs the standard library, and PyTorch for all parts but `storage`.  It must not need
stagewatch, since PyTorch is usually installed in another environment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Found = dict[str, Any]


def devices(arguments: Found) -> Found:
    """PyTorch's version, and the GPUs that it reaches: name and UUID."""
    import torch

    cuda: Any = torch.cuda
    if not cuda.is_available():
        hardware = any(Path("/dev").glob("nvidia[0-9]*"))
        return {"torch": torch.__version__, "cuda": torch.version.cuda, "unreached": hardware,
                "gpus": []}  # fmt: skip
    known = [cuda.get_device_properties(at) for at in range(cuda.device_count())]
    gpus = [
        {"name": one.name, "uuid": str(getattr(one, "uuid", at))} for at, one in enumerate(known)
    ]
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus}


def _device(arguments: Found) -> Any:
    import torch

    gpu = arguments["gpu"]
    if gpu is None:
        return torch.device("cpu")
    torch.cuda.set_device(gpu)
    return torch.device("cuda", gpu)


def _best(work: Callable[[], object], arguments: Found) -> float:
    """The shortest of at least three calls after a first, in seconds."""
    import torch

    def once() -> float:
        began = time.perf_counter()
        work()
        if arguments["gpu"] is not None:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    once()
    end, times = time.perf_counter() + arguments["seconds"], [once(), once(), once()]
    while time.perf_counter() < end:
        times.append(once())
    return min(times)


def memory(arguments: Found) -> Found:
    """Bytes a second that memory reads and writes while a large block is copied within it."""
    import torch

    device = _device(arguments)
    free = torch.cuda.mem_get_info()[0] if arguments["gpu"] is not None else 2 << 30
    words = min(1 << 30, free // 8) // 8
    source = torch.arange(words, dtype=torch.int64, device=device)
    copy = torch.empty_like(source)
    took = _best(lambda: copy.copy_(source), arguments)
    return {"value": 2 * 8 * words / took, "same": bool(torch.equal(source, copy))}


def product(arguments: Found) -> Found:
    """Operations a second of a product of two matrices: bf16 on a GPU, fp32 on a CPU."""
    import torch

    device = _device(arguments)
    size, kind = (8192, torch.bfloat16) if arguments["gpu"] is not None else (1024, torch.float32)
    torch.manual_seed(7)
    left = torch.randn(size, size, dtype=torch.float32).to(kind).to(device)
    right = torch.randn(size, size, dtype=torch.float32).to(kind).to(device)
    first = left @ right
    again = torch.empty_like(first)
    took = _best(lambda: torch.matmul(left, right, out=again), arguments)
    return {"value": 2 * size**3 / took, "same": bool(torch.equal(first, again))}


def all_reduce(arguments: Found) -> Found:
    """Bytes a second that each link carries (bus bandwidth, as nccl-tests has it) in an all-reduce
    of all ranks: over NCCL between GPUs, over gloo between processes on a CPU."""
    import torch
    import torch.distributed as dist

    device, ranks = _device(arguments), arguments["ranks"]
    backend, words = ("nccl", 64 << 20) if arguments["gpu"] is not None else ("gloo", 4 << 20)
    dist.init_process_group(
        backend, init_method=f"file://{arguments['meeting']}", rank=arguments["rank"],
        world_size=ranks,
    )  # fmt: skip
    block = torch.ones(words, dtype=torch.float32, device=device)
    dist.all_reduce(block)
    same = bool((block == ranks).all())
    times = []
    for _ in range(8):  # as many on each rank
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(block)
        if arguments["gpu"] is not None:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    dist.destroy_process_group()
    return {"value": 2 * (ranks - 1) / ranks * 4 * words / min(times), "same": same}


def main() -> None:
    """Measure what the arguments ask for; an exception is a result."""
    sys.path.remove(str(Path(__file__).parent))  # PyTorch's imports must not find our files
    part, arguments = sys.argv[1], json.loads(sys.argv[2])
    functions = {each.__name__: each for each in (devices, memory, product, all_reduce)}
    try:
        found = functions[part](arguments)
    except ImportError as error:
        found = {"missing": error.name or "torch"}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    print("\n" + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
