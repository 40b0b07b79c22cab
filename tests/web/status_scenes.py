"""Nodes in known states, for the tests of the agent's pages and for looking at them.

`python -m tests.web.status_scenes hang` serves one on a free port until it is interrupted.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from stagewatch import node
from stagewatch.core.collector import Collector, Page
from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.exposition import Metric, Samples
from stagewatch.core.runner import Job, Runner
from stagewatch.judgement import service
from stagewatch.slurm import agent as slurm
from stagewatch.web.agent_server import AgentServer

_GPU = ("gpu", "uuid", "mig")
_RANK = ("job_id", "role", "rank")


def _gauge(name: str, *labels: str) -> Metric:
    return Metric(name, "counter" if name.endswith("_total") else "gauge", f"{name}.", labels)


GPU_INFO = _gauge(
    "gpu_info", *_GPU, "model", "type", "minor", "pci_bus_id", "driver", "vbios", "serial", "source"
)
GPU_JOB = _gauge("gpu_job_info", *_GPU, "job_id", "user")
GPU_UP = _gauge("gpu_up", *_GPU)
GPU_READINGS = {
    name: _gauge(name, *_GPU)
    for name in (
        "gpu_temperature_celsius",
        "gpu_temperature_slowdown_celsius",
        "gpu_utilization_ratio",
        "gpu_memory_used_bytes",
        "gpu_memory_total_bytes",
        "gpu_power_watts",
        "gpu_power_limit_watts",
    )
}
RANK_INFO = _gauge("rl_rank_info", *_RANK, "local_rank", "pid", "uuid", "framework", "world_size")
RANK_UP = _gauge("rl_rank_up", *_RANK)
RANK_STEP = _gauge("rl_rank_step", *_RANK)
RANK_PROGRESS = _gauge("rl_rank_progress_age_seconds", *_RANK)
RANK_STAGE = _gauge("rl_rank_stage_open_seconds", *_RANK, "stage", "substage")
RANK_WAIT = _gauge("rl_rank_wait_class", *_RANK, "class")
RANK_FAILURE = _gauge("rl_rank_first_failure_timestamp_seconds", *_RANK, "stage", "error")
RANK_MEMORY = _gauge("rl_rank_resident_memory_bytes", *_RANK)
RANK_FRAME = _gauge("rl_rank_stack_frame_info", *_RANK, "frame")
HOSTILE = "<script>alert(1)</script>\"'&</td>\u202egnp.exe\n\0" + "x" * 300


class Always(Collector):
    """Answers with what a function makes."""

    def __init__(self, make: Callable[[], Samples]) -> None:
        self._make = make

    def collect(self) -> Samples:
        return self._make()


class Hangs(Collector):
    """Never answers until it is closed."""

    def __init__(self) -> None:
        self._end = threading.Event()

    def collect(self) -> Samples:
        self._end.wait()
        raise SourceError("closed")

    def close(self) -> None:
        self._end.set()


def gpus(
    count: int = 8, *, source: str = "nvml", model: str = "NVIDIA H200", lost: bool = False
) -> Samples:
    """GPUs of which one is hot and one warm; the last has no memory or power readings."""
    out = Samples()
    for index in range(count):
        uuid = f"GPU-{index:08x}"
        pci = f"00000000:{index:02X}:00.0"
        out.add(
            GPU_INFO,
            1,
            index,
            uuid,
            "",
            model,
            "h200",
            index,
            pci,
            "575.57.08",
            "96.00",
            "1",
            source,
        )
        readings = [58 + 4 * index, 92, (0.97, 0.99, 0.02)[index % 3]]
        if index < 7:
            readings += [(140 - 17 * index) * 2**30, 141 * 2**30, 690 - 80 * index, 700]
        for metric, value in zip(GPU_READINGS.values(), readings, strict=False):
            out.add(metric, value, index, uuid, "")
    if lost:
        out.add(GPU_UP, 0, count, f"GPU-{count:08x}", "")
    return out


def ranks(
    count: int = 8,
    *,
    job_id: str = "540",
    role: str = "train",
    wait: Callable[[int], str] = lambda rank: "compute",
    stage: str = "train",
    substage: str = "",
    age: float = 0.4,
) -> Samples:
    """Ranks of one job."""
    out = Samples()
    for rank in range(count):
        key = (job_id, role, rank)
        wait_class = wait(rank)
        out.add(RANK_INFO, 1, *key, rank, 3905310 + rank, f"GPU-{rank:08x}", "verl", count)
        out.add(RANK_UP, int(wait_class != "gone"), *key)
        out.add(RANK_STEP, 220 - (wait_class == "parked"), *key)
        out.add(RANK_PROGRESS, age + rank / 10, *key)
        out.add(RANK_STAGE, age + 1.5, *key, stage, substage)
        out.add(RANK_WAIT, 1, *key, wait_class)
        out.add(RANK_MEMORY, (61 + rank) * 2**30 / 7, *key)
    return out


def several_jobs() -> Samples:
    """Two jobs that have ended without a word, and two that live."""
    out = Samples()
    for job in (538, 539, 700, 701):
        wait = "compute" if job >= 700 else "gone"
        of_job = ranks(4, job_id=str(job), wait=lambda rank, wait=wait: wait)
        for metric, family in of_job.families.items():
            for labels, value in family.items():
                out.add(metric, value, *labels)
    return out


def failed() -> Samples:
    """Rank 5 has gone after an exception of its own."""
    out = ranks(wait=lambda rank: "gone" if rank == 5 else "parked")
    out.add(RANK_FAILURE, 1732458600, "540", "train", 5, "rollout", "CUDAOutOfMemory")
    return out


def gpu_jobs() -> Samples:
    out = Samples()
    for index in range(7):
        out.add(GPU_JOB, 1, index, f"GPU-{index:08x}", "", "540", "alice")
    return out


def nothing() -> Samples:
    return Samples()


def no_data() -> Samples:
    raise NoData("nothing of the kind here")


def fails() -> Samples:
    raise SourceError("chronyd: cannot open /run/chrony/chronyd.sock: Permission denied")


def hang() -> Samples:
    return ranks(wait=lambda rank: "parked" if rank == 0 else "spin", age=412)


def looked_at() -> Samples:
    out = Samples()
    for rank in range(8):
        where = "loop.py:80 in wait" if rank else "reward.py:25 in length_reward"
        out.add(RANK_FRAME, 1, "540", "train", rank, where)
    return out


def many() -> Samples:
    classes = ("compute", "spin", "parked", "io", "gone", "stopped", "unheard-of")
    return ranks(
        300,
        wait=lambda rank: classes[rank % 7],
        role="rollout",
        stage="weights_update",
        substage="update_actor",
    )


def hostile() -> Samples:
    out = ranks(3, job_id=HOSTILE, role=HOSTILE, stage=HOSTILE, wait=lambda rank: HOSTILE)
    out.add(RANK_FRAME, 1, HOSTILE, HOSTILE, 0, HOSTILE)
    return out


Parts = dict[str, Callable[[], Samples] | Collector]

SCENES: dict[str, Callable[[], Parts]] = {
    "healthy": lambda: {"ranks": ranks, "gpu": gpus, "clock": nothing},
    "hang": lambda: {
        "stages": nothing,
        "ranks": hang,
        "gpu": gpus,
        "gpu_jobs": gpu_jobs,
        "clock": fails,
        "nfs": Hangs(),
        "infiniband": no_data,
    },
    "looked-at": lambda: {"ranks": hang, "incidents": looked_at},
    "jobs": lambda: {"ranks": several_jobs, "gpu": gpus},
    "failed": lambda: {"ranks": failed, "gpu": gpus},
    "recorded": lambda: {
        "ranks": ranks,
        "gpu": lambda: gpus(2, source="recorded"),
    },
    "many": lambda: {"ranks": many, "gpu": lambda: gpus(7, lost=True)},
    "hostile": lambda: {
        "ranks": hostile,
        "gpu": lambda: gpus(1, model=HOSTILE),
    },
    "nothing": lambda: {"ranks": nothing, "gpu": no_data},
    "stuck": lambda: {"clock": fails, "ranks": Hangs(), "gpu": Hangs()},
    "slurm": lambda: {"queue": nothing, "nodes": fails},
}


PAGES: dict[str, Page] = {
    spec.name: spec.page
    for command in (node.COMMAND, slurm.COMMAND, service.COMMAND)
    for spec in command.specs()
}
"""By the name of a collector."""


def runner_of(parts: Parts, interval: float = 1.0) -> Runner:
    """A runner, not started, of these collectors."""
    return Runner(
        Job(
            name,
            part if isinstance(part, Collector) else Always(part),
            interval,
            page=PAGES.get(name, ""),
        )
        for name, part in parts.items()
    )


def serve_until_interrupted(parts: Parts, port: int, node: str) -> None:
    """Tell where the page is."""
    runner = runner_of(parts)
    server = AgentServer(
        ("127.0.0.1", port), runner, node=node, record_dir=Path("/run/stagewatch/ranks")
    )
    runner.start()
    server.start()
    print(f"http://127.0.0.1:{server.port}/", flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        server.close()
        runner.close()


if __name__ == "__main__":
    chosen = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    serve_until_interrupted(SCENES[sys.argv[1]](), chosen, "gpu-node-17")
