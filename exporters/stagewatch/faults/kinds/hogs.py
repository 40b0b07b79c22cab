"""A helper process that is the fault as long as it runs: a hog of stress-ng, a holder of memory."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from stagewatch.errors import ConfigError, SourceError, StagewatchError
from stagewatch.faults.plan import Kind, Plan, Request, Step, human, percent, size
from stagewatch.faults.processes import Gone, find_process, tagged
from stagewatch.faults.tools import Commands, require, shown

PATIENCE_SECONDS = 3.0

_running: dict[str, subprocess.Popen[bytes]] = {}
"""Those that this process has started, by the fault's id."""


@dataclass(frozen=True, slots=True)
class Helper(Step):
    """Runs a command in the background; whatever it forks is ended with it."""

    id: str
    argv: tuple[str, ...]
    log: str
    environ: tuple[tuple[str, str], ...] = ()

    def doing(self) -> list[str]:
        settings = "".join(f"{name}={value} " for name, value in self.environ)
        return [f"{settings}{shown(self.argv)} &"]

    def undoing(self) -> list[str]:
        return [
            f"kill -TERM, after {PATIENCE_SECONDS:g} s kill -KILL, each process with "
            f"STAGEWATCH_FAULT_ID={self.id} in its environment"
        ]

    def do(self, commands: Commands) -> None:
        setting = [f"{name}={value}" for name, value in self.environ]
        prefix = ["env", *setting] if setting else []
        _running[self.id] = commands.start(*prefix, *self.argv, log=Path(self.log))

    def undo(self, commands: Commands) -> list[str]:
        begun = time.monotonic()
        ended: list[str] = []
        while found := tagged(self.id):
            waited = time.monotonic() - begun
            if waited > 4 * PATIENCE_SECONDS:
                raise SourceError(f"processes {[each.pid for each in found]} do not end")
            gentle = waited < PATIENCE_SECONDS
            for each in found:
                number = signal.SIGTERM if gentle else signal.SIGKILL
                with contextlib.suppress(Gone):
                    each.send(number)
                line = f"kill -{number.name.removeprefix('SIG')} {each.pid}"
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
            said = Path(self.log).read_text(errors="replace").strip().splitlines()[-3:]
        except OSError:
            said = []
        return f"{self.argv[0]} has ended: {' / '.join(said) or 'it said nothing'}"


_ONLINE = Path("/sys/devices/system/cpu/online")


def _cpu_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load", default="100", metavar="PERCENT", help="busy share per core [default: 100]"
    )
    parser.add_argument(
        "--hogs",
        type=int,
        default=1,
        metavar="N",
        help="busy processes per core: with N, a rank gets 1/(N+1) of its core [default: 1]",
    )


def _cpu(request: Request) -> Plan:
    share = percent("--load", request.options.load)
    cores = _cores(request)
    hogs = request.options.hogs
    if not 1 <= hogs <= 64:
        raise ConfigError(f"--hogs {hogs}: must be from 1 to 64")
    require("stress-ng")
    argv = (
        *("stress-ng", "--cpu", str(hogs * len(cores)), "--cpu-load", f"{share * 100:.0f}"),
        *("--taskset", ",".join(map(str, cores)), "--temp-path", "/tmp"),  # noqa: S108
        *("--timeout", f"{request.tool_seconds}s", "--keep-name", "--quiet"),
    )
    helper = Helper(request.id, argv, str(request.log))
    return Plan((helper,), f"cores {_ranges(cores)}")


def _cores(request: Request) -> list[int]:
    online = parse_cores(_ONLINE.read_text().strip())
    target = request.target
    if target == "all":
        return sorted(online)
    if ":" in target:
        name = target.removeprefix("pid:")
        process = find_process(name, request.options.record_dir)
        return sorted(os.sched_getaffinity(process.pid))
    cores = parse_cores(target)
    if not cores:
        raise ConfigError(f"--target {target!r}: must be {CPU.target}")
    if missing := cores - online:
        raise StagewatchError(
            f"--target {target}: this machine has no core {min(missing)}, only {_ranges(online)}"
        )
    return sorted(cores)


def parse_cores(text: str) -> set[int]:
    """Core numbers from the kernel's list form, as `0,4-7`; empty for what is not in that form."""
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", text):
        return set()
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) < int(first):
            return set()
        found.update(range(int(first), int(last or first) + 1))
    return found


def _ranges(cores: set[int] | list[int]) -> str:
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and parts[-1][-1] == core - 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in parts)


CPU = Kind(
    name="cpu",
    help="keep cores busy, so that what runs on them is slowed down (stress-ng)",
    target="cores of this machine as 0,4-7, `all`, or the cores of a process: pid:PID, JOB:RANK",
    plan=_cpu,
    add_options=_cpu_options,
)


def _memory_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--leave",
        default="1GiB",
        metavar="SIZE",
        help="refuse to take so much that less than this would be available [default: 1GiB]",
    )


def _memory(request: Request) -> Plan:
    wanted = size("--target", request.target)
    leave = size("--leave", request.options.leave)
    if not wanted:
        raise ConfigError("--target 0: must be more than nothing")
    available = available_memory()
    if wanted + leave > available:
        raise StagewatchError(
            f"--target {request.target}: {human(available)} are available and {human(leave)} are "
            "to be left (--leave)"
        )
    require("stress-ng")
    argv = (
        *("stress-ng", "--vm", "1", "--vm-bytes", str(wanted), "--vm-keep", "--vm-hang", "0"),
        *("--temp-path", "/tmp", "--timeout", f"{request.tool_seconds}s", "--keep-name", "--quiet"),  # noqa: S108
    )
    helper = Helper(request.id, argv, str(request.log))
    return Plan((helper,), f"{human(wanted)} of memory")


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes that can be had without swapping, as the kernel estimates them."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    if not match:
        raise StagewatchError(f"{meminfo} does not tell how much memory is available")
    return int(match[1]) * 1024


MEMORY = Kind(
    name="memory",
    help="hold memory, never more than asked and never below a floor (stress-ng)",
    target="how much, as 4GiB",
    plan=_memory,
    add_options=_memory_options,
)
