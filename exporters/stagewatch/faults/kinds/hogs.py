"""Helper processes that are a fault while they run, and hogs of cores and memory."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core import words
from stagewatch.core.config import option
from stagewatch.core.config import size as parse_size
from stagewatch.core.errors import ConfigError, SourceError, StagewatchError
from stagewatch.faults.plan import Kind, Percent, Plan, Request, Step, parsed, percent
from stagewatch.faults.processes import TAG, Gone, find_process, tagged
from stagewatch.faults.tools import Commands, require, shown

PATIENCE_SECONDS = 3.0
_ONLINE = Path("/sys/devices/system/cpu/online")

_running: dict[str, subprocess.Popen[bytes]] = {}
"""The helpers that this process has started, by the fault's id."""


@dataclass(frozen=True, slots=True)
class Helper(Step):
    """Runs a command in the background; undoing it also ends the processes it forked."""

    id: str
    argv: tuple[str, ...]
    log: str

    def doing(self) -> list[str]:
        return [f"{shown(self.argv)} &"]

    def undoing(self) -> list[str]:
        return [
            f"kill -TERM, after {PATIENCE_SECONDS:g} s kill -KILL, each process with "
            f"{TAG}={self.id} in its environment"
        ]

    def do(self, commands: Commands) -> None:
        _running[self.id] = commands.start(*self.argv, log=Path(self.log))

    def undo(self, commands: Commands) -> list[str]:
        begun = time.monotonic()
        ended: list[str] = []
        while helpers := tagged(self.id):
            waited = time.monotonic() - begun
            if waited > 4 * PATIENCE_SECONDS:
                raise SourceError(f"processes {[helper.pid for helper in helpers]} do not end")
            gentle = waited < PATIENCE_SECONDS
            for helper in helpers:
                number = signal.SIGTERM if gentle else signal.SIGKILL
                with contextlib.suppress(Gone):
                    helper.send(number)
                line = f"kill -{number.name.removeprefix('SIG')} {helper.pid}"
                if line not in ended:
                    ended.append(line)
            time.sleep(0.05)
        Path(self.log).unlink(missing_ok=True)
        return ended

    def over(self) -> str:
        process = _running.get(self.id)
        if process is None or process.poll() is None:
            return ""
        try:
            lines = Path(self.log).read_text(errors="replace").strip().splitlines()[-3:]
        except OSError:
            lines = []
        return f"{self.argv[0]} has ended: {' / '.join(lines) or 'it said nothing'}"


def stress_ng(request: Request, *argv: str) -> Helper:
    """A hog that ends by itself if nobody ends it.  Raises if stress-ng is missing."""
    require("stress-ng")
    limit = ("--timeout", f"{request.tool_seconds}s", "--keep-name", "--quiet")
    return Helper(request.id, ("stress-ng", *argv, *limit), str(request.log))


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """Options of `cpu`."""

    load: Percent = option(Percent(1.0), "busy share of each hog's time", parse=percent)
    hogs: int = option(
        1, "busy processes per core: with N of them, a rank gets 1/(N+1) of its core"
    )


def _cpu(request: Request, options: CpuOptions) -> Plan:
    cores = _cores(request)
    if not 1 <= options.hogs <= 64:
        raise ConfigError(f"--hogs {options.hogs}: must be from 1 to 64")
    hogs = stress_ng(
        request,
        *("--cpu", str(options.hogs * len(cores)), "--cpu-load", f"{options.load.ratio * 100:.0f}"),
        *("--taskset", ",".join(map(str, cores)), "--temp-path", "/tmp"),  # noqa: S108
    )
    return Plan((hogs,), f"cores {request.target}")


def _cores(request: Request) -> list[int]:
    listed = _ONLINE.read_text().strip()
    online = set(words.indices_of(listed))
    target = request.target
    if target == "all":
        return sorted(online)
    if ":" in target:
        process = find_process(target.removeprefix("pid:"), request.record_dir)
        return sorted(os.sched_getaffinity(process.pid))
    cores = set(words.indices_of(target))
    if not cores:
        raise CPU.refuse_target(request)
    if missing := cores - online:
        raise StagewatchError(
            f"--target {target}: this machine has no core {min(missing)}, only {listed}"
        )
    return sorted(cores)


CPU = Kind(
    name="cpu",
    help="keep cores busy, which slows down other processes on them (stress-ng)",
    target="cores of this machine as 0,4-7, `all`, or the cores of a process: pid:PID, JOB:RANK",
    plan=_cpu,
    options=CpuOptions,
)


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Options of `memory`."""

    leave: int = option(1 << 30, "refuse if less than this would stay available", parse=parse_size)


def _memory(request: Request, options: MemoryOptions) -> Plan:
    wanted: int = parsed("--target", request.target, parse_size)
    if not wanted:
        raise ConfigError("--target 0: must be more than nothing")
    available = available_memory()
    if wanted + options.leave > available:
        raise StagewatchError(
            f"--target {request.target}: {words.size(available)} are available and "
            f"{words.size(options.leave)} are to be left (--leave)"
        )
    hog = stress_ng(
        request,
        *("--vm", "1", "--vm-bytes", str(wanted), "--vm-keep", "--vm-hang", "0"),
        *("--temp-path", "/tmp"),  # noqa: S108
    )
    return Plan((hog,), f"{words.size(wanted)} of memory")


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    """The kernel's estimate of the bytes that are available without swapping."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    if not match:
        raise StagewatchError(f"{meminfo} does not say how much memory is available")
    return int(match[1]) * 1024


MEMORY = Kind(
    name="memory",
    help="hold memory, but leave a floor free (stress-ng)",
    target="how much, as 4GiB",
    plan=_memory,
    options=MemoryOptions,
)
