"""Asks PyTorch's flight recorder, NCCL's RAS and Ray about a job that seems to hang.

Their answers are facts of an incident, and edges in the graph of the job.

A child without privileges asks them, since pipes, dumps and ports belong to the user of the job,
who may have put anything there.  So NCCL is asked for every user, but the flight recorder's pipe
only if the agent's own user may write to it."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stagewatch.core.children.start import Child, plainly
from stagewatch.core.children.supervisor import Supervisor
from stagewatch.core.errors import StagewatchError
from stagewatch.core.state_file import BROKEN, whole
from stagewatch.core.words import printable
from stagewatch.host.guarded import Files
from stagewatch.host.procfs import variables
from stagewatch.incidents.files import communicator
from stagewatch.incidents.kernel_waits import Awaited
from stagewatch.incidents.nccl_ras import DEADLINE_SECONDS
from stagewatch.ranks.model import Rank
from stagewatch.ranks.nccl.files import ByProcess
from stagewatch.ranks.nccl.layout import Communicator

log = logging.getLogger(__name__)

MAX_LINES = 32
MAX_LINE = 300
MAX_CALLS = 16
"""The most calls of one process that are reported."""
VARIABLES = (
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
    "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "XDG_CACHE_HOME",
    "HOME",
    "NCCL_RAS_ADDR",
    "NCCL_RAS_ENABLE",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RAY_JOB_ID",
    "RAY_API_SERVER_ADDRESS",
    "RAY_AUTH_TOKEN",
)
"""Variables of the environment that a process was started with; later changes are unknown."""

_CHILD = Child("stagewatch.incidents.libraries_child")


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of RAS and the flight recorders: facts, one a line, and the communicators of each
    process."""

    lines: Sequence[str] = ()
    calls: ByProcess = field(default_factory=dict)


RayWaits = Mapping[int, Sequence[Awaited]]
"""By process that runs a task of Ray, the tasks that it waits for; empty if Ray does not say."""


@dataclass(frozen=True, slots=True)
class FirstAnswers(Answers):
    """The answers of RAS and Ray, and the flight recorders that can be read later."""

    dumps: Sequence[Mapping[str, Any]] = field(default=())
    ray: RayWaits | None = None
    """Ray's answer; `None` for a job outside of Ray."""


class Libraries:
    """Asks the libraries of a job's ranks in a child; `rest` ends the child."""

    def __init__(
        self,
        files: Files | None,
        *,
        timeout: float = 20.0,
        ras_timeout: float = DEADLINE_SECONDS,
    ) -> None:
        self._files = files
        self._ras_timeout = ras_timeout
        self._child = Supervisor(
            "what asks PyTorch and NCCL",
            lambda: plainly(_CHILD),
            timeout=timeout,
            start_timeout=timeout,
        )

    def ask(self, ranks: Sequence[Rank]) -> FirstAnswers:
        """Ask RAS and Ray, and every rank's flight recorder for a dump."""
        try:
            targets = self._targets(ranks)
            if not targets:
                return FirstAnswers()
            answer = self._child.ask({"ask": targets, "ras_timeout": self._ras_timeout}, dict)
        except StagewatchError as error:
            log.warning("no facts of PyTorch and NCCL: %s", error)
            return FirstAnswers()
        ray = None
        if any("RAY_JOB_ID" in one["environ"] for one in targets):
            ray = _awaited(answer["waits"])
        return FirstAnswers(_lines(answer["lines"]), _calls(answer["calls"]), answer["dumps"], ray)

    def read(self, asked: FirstAnswers) -> Answers:
        """The answers with the dumps, which must have had time to be written."""
        if not asked.dumps:
            return asked
        try:
            answer = self._child.ask({"read": asked.dumps}, dict)
        except StagewatchError as error:
            log.warning("no facts of PyTorch's flight recorder: %s", error)
            return asked
        calls = dict(asked.calls)
        for pid, more in _calls(answer["calls"]).items():
            calls[pid] = calls.get(pid, ()) + more
        return Answers(_lines([*asked.lines, *answer["lines"]]), calls)

    def rest(self) -> None:
        """End the child until the next question."""
        self._child.dismiss()

    def close(self) -> None:
        """End the child for good."""
        self._child.close()

    def _targets(self, ranks: Sequence[Rank]) -> list[dict[str, Any]]:
        by_pid = {rank.pid: rank for rank in ranks if rank.pid and rank.uid >= 0}
        if self._files is None or not by_pid:
            return []
        prefixes = [f"{name}=" for name in VARIABLES]
        here = os.readlink("/proc/self/ns/net").encode()  # noqa: PTH115
        networks = self._files.read("ns/net", by_pid)
        sockets = self._files.read("sockets", by_pid)
        return [
            {
                "pid": pid,
                "start": by_pid[pid].start_ticks or 0,
                "rank": by_pid[pid].rank,
                "uid": by_pid[pid].uid,
                "reachable": networks.get(pid) == here,
                "since": _last_mark(by_pid[pid]),
                "sockets": (sockets.get(pid) or b"").decode().split(),
                "environ": variables(content or b""),
            }
            for pid, content in self._files.read("environ", by_pid, prefixes).items()
        ]


def _last_mark(rank: Rank) -> float:
    """Unix time of its last mark of progress; long ago for a rank without marks."""
    if rank.record is None:
        return 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + rank.record.progress


def _awaited(answer: Sequence[Any]) -> RayWaits:
    """Ray's answer with printable names, since programs choose these."""
    found = {}
    with contextlib.suppress(*BROKEN):
        for pid, those in answer:
            found[whole(pid)] = tuple(
                Awaited(whole(one["pid"]), printable(one["task"], 80), printable(one["who"], 160))
                for one in those[:MAX_CALLS]
            )
    return found


def _lines(lines: Sequence[object]) -> list[str]:
    return [printable(str(line), MAX_LINE) for line in lines[:MAX_LINES]]


def _calls(answer: Sequence[Any]) -> dict[int, tuple[Communicator, ...]]:
    """Names are those that a program gives."""
    calls: dict[int, tuple[Communicator, ...]] = {}
    for pid, content in answer:
        with contextlib.suppress(*BROKEN):
            if len(calls.get(pid, ())) < MAX_CALLS:
                calls[pid] = (*calls.get(pid, ()), communicator(content))
    return calls
