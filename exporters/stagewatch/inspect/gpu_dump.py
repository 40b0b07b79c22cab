"""Has CUDA write a core dump of the GPU of a rank at fault, and finds the kernel that runs there.

A process started with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1 writes a dump when data is written into
its pipe (cuda-gdb's manual, "GPU core dump support").  It ends afterwards unless
CUDA_COREDUMP_GENERATION_FLAGS has `skip_abort`, so processes without that flag are not asked.  Nor
are processes of other users.  This has been tested with a stand-in for CUDA, but on no GPU.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from stagewatch.core.errors import StagewatchError
from stagewatch.core.words import printable
from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import variables
from stagewatch.incidents.flight_recorder import trigger
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.judge import Verdict

MAX_RANKS = 2
MAX_NAME = 160
"""The longest name of a kernel."""
WAIT_SECONDS = 60.0
"""Time for a dump, and time for the debugger that reads it."""
STILL_SECONDS = 1.0
"""A dump that has not grown for so long is complete."""
ENABLED, PIPE, FILE, FLAGS = (
    *("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "CUDA_COREDUMP_PIPE"),
    *("CUDA_COREDUMP_FILE", "CUDA_COREDUMP_GENERATION_FLAGS"),
)
DEFAULTS = {PIPE: "corepipe.cuda.%h.%p", FILE: "core_%t_%h_%p.nvcudmp"}
_KERNEL = re.compile(r"^#0 .*? in (.+?)(?:<<<|\s*\()", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Dumped:
    """The kernel on a rank's GPU, from a core dump."""

    rank: RankFacts
    kernel: str = ""
    """Empty if no kernel runs, or none is known."""
    problem: str = ""
    file: str = ""

    def __str__(self) -> str:
        kernel = f"its GPU runs {self.kernel}" if self.kernel else self.problem
        where = f" ({self.file})" if self.file else ""
        return printable(f"job {self.rank.job_id}: rank {self.rank.rank}: {kernel}{where}", 400)


def dump(verdicts: Sequence[Verdict], wait: float = WAIT_SECONDS) -> list[Dumped]:
    """Dump the GPUs of at most `MAX_RANKS` ranks at fault on this node."""
    suspects = [rank for verdict in verdicts if verdict.stalled for rank in verdict.culprits]
    return [_of(rank, wait) for rank in [rank for rank in suspects if rank.pid][:MAX_RANKS]]


def with_kernels(ranks: Sequence[RankFacts], dumped: Sequence[Dumped]) -> list[RankFacts]:
    """The facts with the kernels of dumped GPUs."""
    kernels = {one.rank.pid: one.kernel for one in dumped}
    return [replace(rank, gpu_kernel=kernels.get(rank.pid, "")) for rank in ranks]


def _of(rank: RankFacts, wait: float) -> Dumped:
    try:
        file = os.path.realpath(_dump(rank.pid, wait))
        return replace(_read(rank, file, wait), file=file)
    except (OSError, StagewatchError, subprocess.SubprocessError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return Dumped(rank, problem=f"no core dump of its GPU: {why}")


def _dump(pid: int, wait: float) -> Path:
    """Ask a process for a core dump, and wait for it.  Raises `OSError` if none comes."""
    uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    if uid != os.getuid():
        raise OSError(0, "only its user may ask for one")
    with closing(GuardedFiles()) as files:
        content = files.read("environ", [pid], ("CUDA_",)).get(pid) or b""
    environ = DEFAULTS | variables(content)
    if environ.get(ENABLED) != "1":
        raise OSError(0, f"it was started without {ENABLED}=1")
    if "skip_abort" not in environ.get(FLAGS, ""):
        raise OSError(0, f"it would end afterwards, as its {FLAGS} lacks skip_abort")
    pipes = _matching(pid, environ, PIPE)
    if not pipes:
        raise OSError(0, "it has no pipe to be asked by")
    before, end = _matching(pid, environ, FILE), time.monotonic() + wait
    trigger(pipes.pop(), uid)
    size, since = -1, time.monotonic()
    while time.monotonic() < end:
        for file in _matching(pid, environ, FILE) - before:
            if (now := Path(file).stat().st_size) != size:
                size, since = now, time.monotonic()
            elif size and time.monotonic() - since > STILL_SECONDS:
                return Path(file)
        time.sleep(0.1)
    raise OSError(0, f"none was written within {wait:g} s")


def _matching(pid: int, environ: Mapping[str, str], name: str) -> set[str]:
    """The files that match a name of CUDA's, in which %h, %p and %t stand for host, process and
    time."""
    parts = re.split(r"(%[hpt])", environ[name])
    stand = {"%p": str(pid), "%h": "*", "%t": "*"}
    path = "".join(stand.get(part, glob.escape(part)) for part in parts)
    at = "root" if path.startswith("/") else "cwd"
    return set(glob.glob(f"/proc/{pid}/{at}/{path.lstrip('/')}"))  # noqa: PTH207


def _read(rank: RankFacts, file: str, wait: float) -> Dumped:
    """The kernel in a dump, found by NVIDIA's debugger."""
    debugger = shutil.which("cuda-gdb")
    if debugger is None:
        why = "there is a core dump of its GPU, and cuda-gdb, which reads it, is not in PATH"
        return Dumped(rank, problem=why)
    command = [debugger, "--batch", "-nx", "-ex", f"target cudacore {file}"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=wait, check=False)
    if found := _KERNEL.search(told.stdout):
        return Dumped(rank, printable(found[1], MAX_NAME))
    return Dumped(rank, problem="its GPU runs no kernel that cuda-gdb names")
