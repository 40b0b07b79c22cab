"""Which kernel runs on the GPU of a rank at fault, by a stand-in for CUDA and for its debugger."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.inspect.gpu_dump import ENABLED, FILE, FLAGS, PIPE, Dumped, dump, with_kernels
from stagewatch.judgement.judge import judge
from stagewatch.judgement.sentence import sentence
from tests.judgement.jobs import LEFT, SPINNING, job
from tests.waiting import wait_for

CUDA = """
import os, socket, time
name = os.environ["CUDA_COREDUMP_PIPE"]
name = name.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
os.mkfifo(name)
pipe = os.open(name, os.O_RDWR)
os.read(pipe, 10)
name = os.environ["CUDA_COREDUMP_FILE"]
name = name.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
with open(name.replace("%t", "1795755559"), "w") as file:
    file.write("a dump")
time.sleep(600)
"""
DEBUGGER = """#!/bin/sh
case "$*" in *"target cudacore "*.nvcudmp) ;; *) exit 1 ;; esac
cat <<END
Opening GPU coredump: some file
[Current focus set to CUDA kernel 0, grid 7, block (0,0,0), thread (0,0,0), device 0, sm 0]
#0  0x00007f2a1c7f2d90 in ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclArgs<4ul>)<<<(2,1,1)>>> ()
END
"""


@pytest.fixture
def told(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Dumped]:
    """What is told of rank 5, which was started with these variables."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def start(**environ: str) -> Dumped:
        ours = {PIPE: f"{tmp_path}/pipe[1]_%h_%p", FILE: f"{tmp_path}/core_%t_%h_%p.nvcudmp"}
        ours |= {ENABLED: "1", FLAGS: "skip_global_memory,skip_abort"}
        process = children.start([sys.executable, "-c", CUDA], environ=os.environ | ours | environ)
        wait_for(lambda: list(tmp_path.glob(f"pipe*_{process.pid}")), "its pipe is there")
        at_fault = LEFT | {"pid": process.pid}
        (found,) = dump(judge(job(8, SPINNING, rank_5=at_fault)), wait=30.0)
        assert process.poll() is None
        assert str(found).startswith("job 540: rank 5: ")
        return found

    return start


def test_the_verdict_has_the_kernel_and_a_line_says_where_the_dump_is(
    told: Callable[..., Dumped], tmp_path: Path
) -> None:
    debugger = tmp_path / "cuda-gdb"
    debugger.write_text(DEBUGGER)
    debugger.chmod(0o755)
    found = told()
    (file,) = tmp_path.glob("*.nvcudmp")
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    assert str(found).endswith(f": its GPU runs {kernel} ({file})")
    ranks = job(8, SPINNING, rank_5=LEFT | {"pid": found.rank.pid})
    (verdict,) = judge(with_kernels(ranks, [found]))
    assert f", its GPU in {kernel}; " in sentence(verdict)


def test_without_a_debugger_the_dump_is_told(told: Callable[..., Dumped], tmp_path: Path) -> None:
    found = told()
    (file,) = tmp_path.glob("*.nvcudmp")
    assert "cuda-gdb, which reads it, is not in PATH" in str(found)
    assert found.file == str(file)


@pytest.mark.parametrize("environ", [{ENABLED: "0"}, {FLAGS: "skip_global_memory"}], ids=str)
def test_a_rank_that_would_die_of_it_or_has_not_asked_for_it_is_left_alone(
    told: Callable[..., Dumped], tmp_path: Path, environ: dict[str, str]
) -> None:
    assert told(**environ).problem.startswith("no core dump of its GPU: it w")
    assert not list(tmp_path.glob("*.nvcudmp"))


def test_a_process_of_another_user_is_left_alone() -> None:
    (found,) = dump(judge(job(8, SPINNING, rank_5=LEFT | {"pid": 1})))
    why = "it was started without" if os.getuid() == 0 else "only its user may ask for one"
    assert why in str(found)
