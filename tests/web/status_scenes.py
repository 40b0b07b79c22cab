"""Nodes in known states, for the tests of the agent's pages and for looking at them.

`python -m tests.web.status_scenes hang` serves one on a free port until it is interrupted.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

from stagewatch import node
from stagewatch.core.collector import Collector, Page
from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.exposition import Metric, Samples
from stagewatch.core.runner import Job, Runner
from stagewatch.judgement import service
from stagewatch.slurm import agent as slurm
from stagewatch.web.agent_server import AgentServer

GPU_READINGS = (
    "gpu_temperature_celsius",
    "gpu_temperature_slowdown_celsius",
    "gpu_utilization_ratio",
    "gpu_memory_used_bytes",
    "gpu_memory_total_bytes",
    "gpu_power_watts",
    "gpu_power_limit_watts",
)
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


@cache
def _metric(name: str, labels: tuple[str, ...]) -> Metric:
    return Metric(name, "counter" if name.endswith("_total") else "gauge", f"{name}.", labels)


def add(out: Samples, name: str, value: float, **labels: object) -> None:
    """One sample more, of a metric with these labels."""
    out.add(_metric(name, tuple(labels)), value, *labels.values())


def gpus(
    count: int = 8, *, source: str = "nvml", model: str = "NVIDIA H200", lost: bool = False
) -> Samples:
    """GPUs of which one is hot and one warm; the last has no memory or power readings."""
    out = Samples()
    for index in range(count):
        gpu = {"gpu": index, "uuid": f"GPU-{index:08x}", "mig": ""}
        info = {"model": model, "type": "h200", "minor": index, "driver": "575.57.08"}
        add(out, "gpu_info", 1, **gpu, **info, source=source)
        readings = [58 + 4 * index, 92, (0.97, 0.99, 0.02)[index % 3]]
        if index < 7:
            readings += [(140 - 17 * index) * 2**30, 141 * 2**30, 690 - 80 * index, 700]
        for name, value in zip(GPU_READINGS, readings, strict=False):
            add(out, name, value, **gpu)
    if lost:
        add(out, "gpu_up", 0, gpu=count, uuid=f"GPU-{count:08x}", mig="")
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
        who = {"job_id": job_id, "role": role, "rank": rank}
        wait_class = wait(rank)
        info = {"local_rank": rank, "pid": 3905310 + rank, "uuid": f"GPU-{rank:08x}"}
        add(out, "rl_rank_info", 1, **who, **info, framework="verl", world_size=count)
        add(out, "rl_rank_up", wait_class != "gone", **who)
        add(out, "rl_rank_step", 220 - (wait_class == "parked"), **who)
        add(out, "rl_rank_progress_age_seconds", age + rank / 10, **who)
        add(out, "rl_rank_stage_open_seconds", age + 1.5, **who, stage=stage, substage=substage)
        add(out, "rl_rank_wait_class", 1, **who, **{"class": wait_class})
        add(out, "rl_rank_resident_memory_bytes", (61 + rank) * 2**30 / 7, **who)
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
    who = {"job_id": "540", "role": "train", "rank": 5}
    failure = {"stage": "rollout", "error": "CUDAOutOfMemory"}
    add(out, "rl_rank_first_failure_timestamp_seconds", 1732458600, **who, **failure)
    return out


def gpu_jobs() -> Samples:
    out = Samples()
    for index in range(7):
        gpu = {"gpu": index, "uuid": f"GPU-{index:08x}", "mig": ""}
        add(out, "gpu_job_info", 1, **gpu, job_id="540", user="alice")
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
        who = {"job_id": "540", "role": "train", "rank": rank}
        add(out, "rl_rank_stack_frame_info", 1, **who, frame=where)
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
    who = {"job_id": HOSTILE, "role": HOSTILE, "rank": 0}
    add(out, "rl_rank_stack_frame_info", 1, **who, frame=HOSTILE)
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
    "recorded": lambda: {"ranks": ranks, "gpu": lambda: gpus(2, source="recorded")},
    "many": lambda: {"ranks": many, "gpu": lambda: gpus(7, lost=True)},
    "hostile": lambda: {"ranks": hostile, "gpu": lambda: gpus(1, model=HOSTILE)},
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
