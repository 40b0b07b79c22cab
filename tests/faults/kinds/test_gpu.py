"""Faults of GPUs: refused where there is none; on a stand-in for the driver, as on a real one."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from tests.fakes.nvml import FakeNvml
from tests.faults.injecting import Injector
from tests.running import Python
from tests.waiting import wait_for

MIB = 1 << 20
SOURCE = Path(__file__).parents[2] / "fakes" / "libcuda.c"


def driver_is_here() -> bool:
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    return "libcuda.so.1" in listed or "libnvidia-ml.so.1" in listed


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a driver library of one GPU of 1 GiB."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build the stand-in for the driver")
    directory = tmp_path_factory.mktemp("cuda")
    library = directory / "libcuda.so.1"
    flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", str(library), str(SOURCE)], check=True)
    return directory


@pytest.fixture
def computing(nvml: FakeNvml, python: Python) -> Iterator[int]:
    """A process that the driver says computes on GPU 0."""
    script = python("import time; print('here'); time.sleep(600)")
    script.said("here")
    nvml.set("gpu.0.processes", f"{script.pid}:1000")
    yield script.pid


@pytest.mark.parametrize("argv", [("gpu-memory", "--size=1GiB", "--for=5s"), ("gpu-process-kill",)])
def test_without_a_gpu_it_says_so(injector: Injector, argv: tuple[str, ...]) -> None:
    if driver_is_here():
        pytest.skip("this machine has the NVIDIA driver")
    said = injector.refused("inject", *argv, "--target=0", status=1)
    assert "there is no GPU to be used here" in said
    assert not injector.markers()


def test_memory_of_a_gpu_is_held_until_the_fault_ends(injector: Injector, cuda: Path) -> None:
    script = injector.hold("gpu-memory", "--target=0", "--size=300MiB", LD_LIBRARY_PATH=str(cuda))

    def held() -> bool:
        stats = [Procfs().stat(each.pid) for each in injector.helpers()]
        return any(stat.resident_bytes > 300 * MIB for stat in stats if stat)

    wait_for(held, "the memory to be held")
    script.process.send_signal(signal.SIGINT)
    script.finish(130)
    injector.gone()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--target=0", "--size=2GiB"), "1024 MiB are free on the GPU"),
        (("--target=0", "--size=900MiB", "--leave=200MiB"), "to be left (--leave)"),
        (("--target=7", "--size=1MiB"), "CUDA_ERROR_INVALID_DEVICE"),
    ],
)
def test_what_the_driver_refuses_is_said_and_ends_the_fault(
    injector: Injector, cuda: Path, flags: tuple[str, ...], problem: str
) -> None:
    argv = ("inject", "gpu-memory", *flags, "--for=60s")
    assert problem in injector.run(*argv, status=1, LD_LIBRARY_PATH=str(cuda))
    injector.gone()


def test_the_one_process_of_a_gpu_is_killed(injector: Injector, computing: int) -> None:
    said = injector.run("inject", "gpu-process-kill", "--target=0")
    assert f"kill -KILL {computing}" in said
    injector.gone()


def test_of_several_processes_one_must_be_named(
    injector: Injector, computing: int, nvml: FakeNvml
) -> None:
    nvml.set("gpu.0.processes", f"{computing}:1000,1:1000")
    argv = ("inject", "gpu-process-kill", "--dry-run")
    assert f"0:1, 0:{computing}" in injector.run(*argv, "--target=0", status=1)
    assert f"kill -KILL {computing}" in injector.run(*argv, f"--target=0:{computing}")
    assert "refused" in injector.run(*argv, "--target=0:1", status=1)
    assert "does not compute" in injector.run(*argv, "--target=0:4194303", status=1)
    assert "no process computes" in injector.run(*argv, "--target=1", status=1)


@pytest.mark.parametrize("target", ["x", "0:x", "-1", "GPU-", "0,1", ""])
def test_what_names_no_gpu_is_a_usage_error(injector: Injector, target: str) -> None:
    injector.refused("inject", "gpu-process-kill", f"--target={target}", status=2)
    argv = ("inject", "gpu-memory", f"--target={target}", "--size=1MiB", "--for=5s")
    injector.refused(*argv, status=2)
