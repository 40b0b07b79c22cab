"""Takes the stacks of a suspect and of one rank of the majority, by py-spy, without stopping them.

https://github.com/benfred/py-spy
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.words import printable
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.verdict.facts import RankFacts
from stagewatch.verdict.judge import Verdict

DEADLINE_SECONDS = 20.0
MAX_FRAMES = 30

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True, slots=True)
class Stacks:
    """What one rank was doing."""

    job_id: str
    role: str
    rank: int
    pid: int
    why: str
    """`suspect` or `majority`."""
    threads: tuple[tuple[str, tuple[str, ...]], ...]
    """Name and frames of each thread, the innermost frame first."""
    problem: str
    """Why there are none, empty if there are."""


def gather(
    facts: Sequence[RankFacts], verdicts: Sequence[Verdict], run: Run | None = None
) -> list[Stacks]:
    """The stacks of two ranks of every job that is wrong: the first culprit that lives, and one of
    the most frequent wait class among the others."""
    taken = []
    for verdict in verdicts:
        if not verdict.wrong:
            continue
        live = [
            fact
            for fact in facts
            if (fact.job_id, fact.role) == (verdict.job_id, verdict.role)
            and fact.wait_class is not WaitClass.GONE
        ]
        suspects = [fact for fact in verdict.culprits if fact in live][:1]
        others = [fact for fact in live if fact not in verdict.culprits]
        taken += [_stacks(fact, "suspect", run or _run) for fact in suspects]
        if others:
            usual = Counter(fact.wait_class for fact in others).most_common(1)[0][0]
            one = next(fact for fact in others if fact.wait_class is usual)
            taken.append(_stacks(one, "majority", run or _run))
    return taken


def text(stacks: Sequence[Stacks]) -> str:
    """The stacks as a person reads them."""
    lines = []
    for one in stacks:
        lines += ["", f"job {one.job_id} rank {one.rank} ({one.role}), pid {one.pid}, {one.why}:"]
        if one.problem:
            lines.append(f"  {one.problem}")
        for name, frames in one.threads:
            lines += [f"  thread {name}", *(f"    {frame}" for frame in frames)]
    return "\n".join(lines)


def why_none(verdicts: Sequence[Verdict]) -> str:
    """Why no stack was taken."""
    if any(verdict.wrong for verdict in verdicts):
        return "No stacks: no process of a job in which something is wrong lives here."
    return "No stacks: they are taken only of a job in which something is wrong, and none is."


def _stacks(fact: RankFacts, why: str, run: Run) -> Stacks:
    threads, problem = _dump(fact.pid, run)
    return Stacks(fact.job_id, fact.role, fact.rank, fact.pid, why, threads, problem)


def _dump(pid: int, run: Run) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], str]:
    if not pid:
        return (), "its process is in a PID namespace not seen from here: run this on the host"
    program = shutil.which("py-spy") or shutil.which(
        "py-spy", path=str(Path(sys.executable).parent)
    )
    if program is None:
        return (), "py-spy is missing: pip install 'stagewatch[evidence]'"
    try:
        done = run([program, "dump", "--json", "--nonblocking", "--pid", str(pid)])
    except subprocess.TimeoutExpired:
        return (), f"py-spy did not answer within {DEADLINE_SECONDS:.0f} s"
    except OSError as error:
        return (), f"{program}: {error.strerror}"
    if done.returncode:
        complaint = printable(" ".join(done.stderr.split()))
        if "ermission" in complaint or "not permitted" in complaint:
            return (), "not permitted: run as root, or as the user of the job with ptrace allowed"
        return (), f"py-spy: {complaint[:200] or f'exit status {done.returncode}'}"
    try:
        return tuple(_thread(thread) for thread in json.loads(done.stdout)), ""
    except (ValueError, TypeError, KeyError, AttributeError):
        return (), "py-spy gave no JSON that can be read; 0.4 or later is needed"


def _thread(thread: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    frames = [
        f"{frame['name']} ({frame.get('short_filename') or frame['filename']}:{frame['line']})"
        for frame in thread["frames"][:MAX_FRAMES]
    ]
    name = str(thread.get("thread_name") or thread.get("os_thread_id") or thread["thread_id"])
    return printable(name), tuple(map(printable, frames))


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DEADLINE_SECONDS,
        check=False,
    )
