"""The child that asks PyTorch's flight recorder and NCCL's RAS; `libraries` is its other end.

It speaks lines of JSON, uses the standard library only, and ends when its input does.  Where a
rank's user has put something that never answers, the agent kills it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import asdict
from typing import Any

from stagewatch.core.children.worker import identity
from stagewatch.core.processes import die_with_parent
from stagewatch.incidents import debug_server, flight_recorder, nccl_ras, ray_tasks

CPU_SECONDS = 20
SERVERS_SECONDS = 5.0
"""Time for the debug servers of all ranks."""
MEMORY_BYTES = 384 << 20
"""Address space of this process, which also limits a hostile dump."""


def ask(targets: list[dict[str, Any]], ras_timeout: float) -> dict[str, Any]:
    """The answers of RAS and Ray, and the flight recorders that can be read: by a debug server, or
    by a requested dump, with the version of the present one."""
    live = [one for one in targets if _lives(one["pid"], one["start"])]
    lines, calls = nccl_ras.facts(live, ras_timeout)
    more, waits = ray_tasks.waits(live)
    lines += more
    dumps: list[dict[str, Any]] = []
    lacking = []
    end = time.monotonic() + SERVERS_SECONDS
    for target in live:
        if time.monotonic() < end and (server := debug_server.find(target)):
            dumps.append({**target, "server": server})
        elif prefix := target["environ"].get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"):
            pipe = _inside(target, f"{prefix}{target['rank']}.pipe")
            dump = _inside(target, f"{_dump_prefix(target['environ'])}{target['rank']}")
            before = flight_recorder.version(dump)
            try:
                flight_recorder.trigger(pipe, target["uid"])
            except FileNotFoundError:
                lacking.append(target["rank"])
            except OSError as error:
                lines.append(f"PyTorch flight recorder: rank {target['rank']}: {error.strerror}")
            else:
                dumps.append({**target, "dump": dump, "before": before})
    if lacking and dumps:  # else the program has none, as one that uses no NCCL
        lines.append(f"PyTorch flight recorder: {flight_recorder.have(lacking)} made no pipe")
    return {"lines": lines, "calls": _plain(calls), "dumps": dumps, "waits": waits}


def read(dumps: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of the flight recorders; of dumps, only of those written since the request."""
    lines, positions = [], {}
    calls: list[nccl_ras.Call] = []
    end = time.monotonic() + SERVERS_SECONDS
    for one in dumps:
        try:
            if "server" in one and time.monotonic() > end:
                raise OSError(0, "other debug servers have taken too long")
            groups = positions[one["rank"]] = flight_recorder.positions(_recorded(one))
            world = int(one["environ"].get("WORLD_SIZE", 0))
            opened = flight_recorder.calls(groups, one["rank"], world)
            calls += [(one["pid"], call) for call in opened]
        except OSError as error:
            lines.append(f"PyTorch flight recorder: rank {one['rank']}: {error.strerror}")
        except Exception as error:  # a hostile dump raises whatever it likes
            name = type(error).__name__
            lines.append(
                f"PyTorch flight recorder: rank {one['rank']}: its dump is damaged ({name})"
            )
    return {"lines": flight_recorder.facts(positions) + lines, "calls": _plain(calls)}


def _recorded(one: dict[str, Any]) -> Any:
    """The content of the flight recorder of a process, or of its dump."""
    if "server" in one:
        return debug_server.load(one["server"])
    if flight_recorder.version(one["dump"]) == one["before"]:
        raise OSError(0, "no dump was written")
    return flight_recorder.load(one["dump"], one["uid"])


def _plain(calls: list[nccl_ras.Call]) -> list[tuple[int, dict[str, Any]]]:
    return [(pid, asdict(one)) for pid, one in calls]


def _lives(pid: int, start: int) -> bool:
    now = identity(pid)
    return now is not None and start in (0, now[1])


def _inside(target: dict[str, Any], path: str) -> str:
    """A path within the mounts of the rank, or within ours if those of the rank may not be seen."""
    pid = target["pid"]
    at = "root" if path.startswith("/") else "cwd"
    if at == "root" and not os.access(f"/proc/{pid}/root/.", os.F_OK):
        return path
    return f"/proc/{pid}/{at}/{path.lstrip('/')}"


def _dump_prefix(environ: dict[str, str]) -> str:
    """The prefix of dumps, as in `DebugInfoWriter::getWriter` of PyTorch's FlightRecorder.cpp."""
    for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        if prefix := environ.get(name):
            return prefix
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '/tmp')}/.cache"  # noqa: S108
    return f"{cache}/torch/comm_lib_trace_rank_"


def main() -> None:
    """Answer questions until the input ends."""
    die_with_parent(os.getppid())
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        question = json.loads(line)
        answer = (
            read(question["read"])
            if "read" in question
            else ask(question["ask"], question["ras_timeout"])
        )
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
