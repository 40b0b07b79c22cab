"""Looks at a job from outside while it hangs: `stagewatch inspect`, and stacks by py-spy."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.running import clean_environ

LAG_SECONDS = 8.0
"""How long the rules may take to judge what `inspect` has seen: an agent looks every second, this
Prometheus scrapes every 2 s, and the rules on stalls are evaluated every 5 s."""
OUTSIDER = "outsider"
"""Evidence that names a process which is no rank."""
_GRACE_SECONDS = 60.0
_STACK_SECONDS = 10.0


@dataclass
class Probe:
    """What was seen."""

    began: float
    ended: float = 0.0
    """Unix seconds between which `inspect` looked."""
    stalled: bool = False
    culprits: set[tuple[str, int]] = field(default_factory=set)
    """Role and rank of those that `inspect` names."""
    outsiders: set[int] = field(default_factory=set)
    """Pids of processes that it names and that are no ranks."""
    evidence: set[str] = field(default_factory=set)
    sentences: list[str] = field(default_factory=list)
    problem: str = ""
    """Why `inspect` gave no answer, empty if it did."""
    stacks: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Of each process that could be read: the functions of its main thread, innermost first."""


def probe(job_id: str, directories: Sequence[tuple[Path, Path]], pids: Mapping[int, int]) -> Probe:
    """Have `inspect` look at each node, by the directories of its records and of its agent's
    incidents, and py-spy at each process."""
    seen = Probe(began=time.time())
    for record_dir, incident_dir in directories:
        _inspect(seen, job_id, record_dir, incident_dir)
    seen.ended = time.time()
    seen.outsiders -= set(pids.values())
    for rank, pid in pids.items():
        if found := stack(pid):
            seen.stacks[rank] = found
    return seen


def _inspect(seen: Probe, job_id: str, record_dir: Path, incident_dir: Path) -> None:
    command = [sys.executable, "-m", "stagewatch.cli", "inspect", "--json", "--job", job_id]
    command += ["--record-dir", str(record_dir), "--incident-dir", str(incident_dir)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_GRACE_SECONDS,
            check=False,
            env=clean_environ({}),
        )
        verdicts: list[dict[str, Any]] = json.loads(done.stdout)["verdicts"]
    except subprocess.TimeoutExpired:
        seen.problem = f"no answer within {_GRACE_SECONDS:.0f} s"
    except (ValueError, KeyError):
        seen.problem = (done.stdout + done.stderr)[-300:]
    else:
        for verdict in verdicts:
            culprits = {(one["role"], one["rank"]) for one in verdict["culprits"]}
            seen.stalled |= bool(verdict["stalled"] or culprits)
            seen.culprits |= culprits
            if verdict["evidence"] == OUTSIDER:
                seen.outsiders |= pids_in(verdict["sentence"])
            seen.evidence |= {verdict["evidence"]} - {""}
            seen.sentences.append(verdict["sentence"])


def pids_in(text: str) -> set[int]:
    """Those of the processes that a text speaks of."""
    return {int(pid) for pid in re.findall(r"\bpid (\d+)", text)}


def stack(pid: int) -> tuple[str, ...]:
    """Functions of the main thread; empty where they cannot be read."""
    program = shutil.which("py-spy") or shutil.which(
        "py-spy", path=os.fspath(Path(sys.executable).parent)
    )
    if program is None:
        return ()
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError, LookupError, StopIteration):
        command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        done = subprocess.run(command, capture_output=True, timeout=_STACK_SECONDS, check=False)
        threads = json.loads(done.stdout)
        return next(
            tuple(frame["name"] for frame in thread["frames"])
            for thread in threads
            if thread["os_thread_id"] == pid
        )
    return ()
