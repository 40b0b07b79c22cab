"""Faults of GPUs: refused where there is none; on a stand-in for the driver, as on a real one."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from tests.deploy.engine import need
from tests.faults.injecting import Injector
from tests.waiting import wait_for

MIB = 1 << 20
SOURCE = Path(__file__).parents[2] / "fakes" / "libcuda.c"


def driver_is_here() -> bool:
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    return "libcuda.so.1" in listed


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a driver library of one GPU of 1 GiB."""
    need("gcc")
    directory = tmp_path_factory.mktemp("cuda")
    library = directory / "libcuda.so.1"
    flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", str(library), str(SOURCE)], check=True)
    return directory


def test_without_a_gpu_it_says_so(injector: Injector) -> None:
    if driver_is_here():
        pytest.skip("this machine has the NVIDIA driver")
    argv = ("inject", "gpu-memory", "--target=0", "--size=1GiB", "--for=5s")
    said = injector.refused(*argv, status=1)
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
        (("--target=7", "--size=1MiB"), "CUDA_ERROR_INVALID_DEVICE"),
    ],
)
def test_what_the_driver_refuses_is_said_and_ends_the_fault(
    injector: Injector, cuda: Path, flags: tuple[str, ...], problem: str
) -> None:
    argv = ("inject", "gpu-memory", *flags, "--for=60s")
    assert problem in injector.run(*argv, status=1, LD_LIBRARY_PATH=str(cuda))
    injector.gone()
