"""The name of a process: its short command line, its container and its job.

The user who started the process chose all of this, and others can see it: what looks like a secret
is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stagewatch.core.words import printable
from stagewatch.host.procfs import Procfs, variables
from stagewatch.identity import identify
from stagewatch.ranks.waits.threads import read
from stagewatch.slurm.node_jobs import parse_slurm_cgroup

MAX_ARGUMENTS = 8
MAX_ARGUMENT = 40
MAX_LENGTH = 120
MAX_JOB = 64
MAX_CALLED = 80
ENDED = ", which has ended"
"""Follows the name of a process that has ended."""

_CONTAINER = re.compile(r"[0-9a-f]{64}")
_SECRET = re.compile(r"key|token|secret|passw|auth|credential|cookie|bearer", re.IGNORECASE)
_LOGIN = re.compile(r"(://)[^/@\s]*@")
_RANDOM = re.compile(r"(?=.*\d)[A-Za-z0-9+_=-]{24,}")
_HIDDEN = "..."


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a process, beyond its pid and its command."""

    arguments: str = ""
    container: str = ""
    job: str = ""
    lacking: tuple[str, ...] = ()


def name_of(proc: Procfs, pid: int, session: int) -> Name:
    """The name of a process, as far as it may be read."""
    lacking = []
    try:
        environ = variables(_read(proc, pid, "environ"))
    except OSError as error:
        environ = {}
        lacking.append(f"its environment: {error.strerror}")
    try:
        arguments = shortened(_read(proc, pid, "cmdline"))
    except OSError:
        arguments = ""
    groups = proc.cgroups(pid)
    container = next((found[0][:12] for path in groups if (found := _CONTAINER.search(path))), "")
    slurm = next((group.job_id for path in groups if (group := parse_slurm_cgroup(path))), "")
    job = slurm or identify(environ, session=session).job_id
    if job.startswith("session-"):  # nothing names it
        job = ""
    return Name(arguments, container, printable(job, MAX_JOB), tuple(lacking))


def called(command: str, pid: int, job: str = "") -> str:
    """A process in words, as `vllm serve (pid 4711)`; with its job, if there is one."""
    told = printable(command)
    if len(told) > MAX_CALLED:
        told = f"{told[: MAX_CALLED - 1]}…"
    return f"{told} (pid {pid}{printable(f' of job {job}', MAX_CALLED) if job else ''})"


def shortened(cmdline: bytes) -> str:
    """The first arguments of a command line, without code and possible secrets."""
    words = cmdline.rstrip(b"\0").decode("utf-8", "replace").split("\0")
    told: list[str] = []
    hidden = False
    for place, word in enumerate(words[:MAX_ARGUMENTS]):
        if hidden or (place and _RANDOM.fullmatch(word)):
            told.append(_HIDDEN)
            hidden = False
            continue
        name, equals, _ = word.partition("=")
        secret = place > 0 and bool(_SECRET.search(name))
        hidden = (secret and not equals and word.startswith("-")) or word in ("-c", "-e")
        shown = f"{name}={_HIDDEN}" if secret and equals else _LOGIN.sub(r"\1", word)
        shown = shown if place else shown.rpartition("/")[2]
        told.append(" ".join(shown.split())[:MAX_ARGUMENT])
    if len(words) > MAX_ARGUMENTS:
        told.append(_HIDDEN)
    return printable(" ".join(told), MAX_LENGTH)


def _read(proc: Procfs, pid: int, file: str) -> bytes:
    """A file that may wait for the process's memory map.  Raises `OSError`."""
    errors: list[OSError] = []

    def attempt() -> bytes:
        try:
            return read(f"{proc.root}/{pid}/{file}", 1 << 17)
        except OSError as error:
            errors.append(error)
            raise

    found = proc.patiently(pid, attempt)
    if found is None:
        raise errors[0] if errors else OSError(0, "it does not answer")
    return found
