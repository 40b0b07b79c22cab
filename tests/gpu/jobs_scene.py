"""A node with GPUs and Slurm's jobs, as the `gpu_jobs` collector finds them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stagewatch.gpu.directory import GpuDirectory
from stagewatch.gpu.jobs import GpuJobsCollector
from stagewatch.host.procfs import Procfs
from stagewatch.slurm.node_jobs import SlurmCgroups
from tests.fake_clock import Clock
from tests.fakes.open_files import OpenFiles
from tests.gpu.gpu_scene import Series, metrics

SCRIPTS = Path(__file__).parents[2] / "deploy" / "slurm"
UUID = "GPU-00000000-0000-4000-8000-00000000000"  # less its last digit, the index
MIG = "MIG-00000000-0000-4000-8000-000000000001"


class Node:
    """A node with four GPUs whose device numbers run against their index, and Slurm's jobs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Clock()
        self.gpus = GpuDirectory()
        self.holders: dict[int, dict[int, float]] = {}
        self.mig = False
        self.hidden = 0
        for name in ("proc", "cgroup"):
            (root / name).mkdir()
        self.collector = GpuJobsCollector(
            self.gpus,
            Procfs(root / "proc"),
            OpenFiles(root / "proc"),
            SlurmCgroups(root / "cgroup"),
            root / "jobs",
            clock=self.clock,
        )

    def process(self, pid: int, cgroup: str, **environ: str) -> None:
        """A process, listed in its cgroup if that is one of this node's."""
        directory = self.root / "proc" / str(pid)
        directory.mkdir()
        (directory / "cgroup").write_text(f"0::/{cgroup}\n")
        text = "".join(f"{key}={value}\0" for key, value in environ.items())
        (directory / "environ").write_bytes(text.encode())
        for mount in ("", "devices/"):
            if (self.root / "cgroup" / f"{mount}{cgroup}").is_dir():
                with (self.root / "cgroup" / f"{mount}{cgroup}" / "cgroup.procs").open("a") as out:
                    out.write(f"{pid}\n")

    def cgroup(self, path: str, devices: str | None = None) -> str:
        """A cgroup, under v1 with its device list."""
        directory = self.root / "cgroup" / path
        directory.mkdir(parents=True, exist_ok=True)
        if devices is not None:
            (directory / "devices.list").write_text(devices)
        return path.removeprefix("devices/")

    def prolog(self, script: str = "prolog.sh", **environ: str) -> None:
        """Run the shipped script as slurmd does."""
        environ = {"STAGEWATCH_JOBS_DIR": str(self.root / "jobs"), **environ}
        subprocess.run([SCRIPTS / script], env=environ, check=True)

    def show(self) -> Series:
        def row(index: int, **values: float) -> dict[str, object]:
            return {"gpu": str(index), "uuid": f"{UUID}{index}", "values": values}

        slow = [row(index) | {"info": {"minor": str(3 - index)}} for index in range(4)]
        medium = [
            row(
                index,
                gpu_processes=len(self.holders.get(index, {})) + self.hidden,
                **{
                    f"gpu_process_memory_bytes/{pid}": used
                    for pid, used in self.holders.get(index, {}).items()
                },
            )
            for index in range(4)
        ]
        if self.mig:
            instance = {"gpu": "0", "uuid": MIG, "mig": "7:0", "values": {"gpu_processes": 0}}
            slow.append(instance | {"info": {"minor": "3"}})
            medium.append(instance)
        self.gpus.update("slow", slow)
        self.gpus.update("medium", medium)
        return metrics(self.collector)


def owners(shown: Series) -> dict[str, str]:
    """Job by GPU index, MIG instances by their id."""
    keys = [dict(key) for name, key in shown if name == "gpu_job_info"]
    return {key.get("mig", key["gpu"]): key["job_id"] for key in keys}
