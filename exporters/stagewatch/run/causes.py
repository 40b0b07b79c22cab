"""Why a command failed: the first of what befell its processes that does not follow from another.

A process that dies takes its peers along: their collectives fail with the connection to it, and
the launcher ends whoever is left.  Such an echo may be recorded before the death itself, since the
kernel closes connections first.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from stagewatch.core.words import ended
from stagewatch.judgement.limits import SETTLE_SECONDS
from stagewatch.ranks.records import Failure, Life, RankRecord
from stagewatch.run.endings import Ending

ECHO_SECONDS = 10.0
"""How much earlier than its cause an echo may be recorded."""

_ECHO_TYPES = {
    *("ConnectionResetError", "ConnectionAbortedError", "ConnectionRefusedError", "EOFError"),
    *("BrokenPipeError", "DistBackendError", "DistNetworkError", "DistStoreError"),
}
_ECHO = re.compile(
    r"connection (was |is )?(reset|closed|refused|aborted|lost|broken)|(reset|closed) by peer"
    r"|broken pipe|socket (was )?closed|remote process|ncclRemoteError|communicator was aborted"
    r"|exited unexpectedly|killed by signal|timed out waiting|operation timeout",
    re.IGNORECASE,
)
_ASKED_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_FATAL = {
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE),
    *(signal.SIGILL, signal.SIGSYS, signal.SIGTRAP),
}


class Kind(IntEnum):
    """What a cause is, the likeliest first."""

    OWN = 0
    """An exception, or the death of a rank."""
    HELPER = 1
    """The death of a process that is no rank: of a data loader's worker, of a server."""
    LEFT = 2
    """A rank that ended well while others went on."""
    ECHO = 3
    """An exception for the end of another process."""
    ASKED = 4
    """The death of a rank by a signal that launchers send."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that ended a process."""

    kind: Kind
    time: float
    """Unix time, seconds."""
    whom: str
    what: str


def first(causes: Iterable[Cause]) -> Cause | None:
    """The one that the others follow from."""
    by_kind: dict[Kind, Cause] = {}
    for cause in sorted(causes, key=lambda one: one.time):
        by_kind.setdefault(cause.kind, cause)
    own, echo = by_kind.get(Kind.OWN), by_kind.get(Kind.ECHO)
    if own is not None and (echo is None or own.time <= echo.time + ECHO_SECONDS):
        return own
    left = by_kind.get(Kind.LEFT)
    if left is not None and (echo is None or left.time > echo.time):
        left = None
    return by_kind.get(Kind.HELPER) or left or echo or own or by_kind.get(Kind.ASKED)


def of_rank(
    record: RankRecord, ending: Ending | None, missed_at: float, offset: float
) -> Cause | None:
    """Why a rank has ended, or cannot go on.

    `missed_at`: when it was first seen to be gone, Unix time; `offset`: seconds from
    `CLOCK_BOOTTIME` to Unix time.
    """
    failure = standing(record, offset)
    if failure is not None:
        told = f"{failure.error}: {failure.message}" if failure.message else failure.error
        step = "" if failure.step is None else f" at step {failure.step}"
        echo = failure.error in _ECHO_TYPES or bool(_ECHO.search(failure.message))
        kind = Kind.ECHO if echo else Kind.OWN
        return Cause(kind, failure.time, name(record), f"{told}, in {failure.stage}{step}")
    if record.life is Life.CLOSED:
        time = ending.time if ending else missed_at
        return Cause(Kind.LEFT, time, f"{name(record)} (pid {record.pid})", "it ended well")
    if record.life is not Life.GONE:
        return None
    number = ending.signal if ending else 0
    stage = f" in {record.open.stage}" if record.open else ""
    return Cause(
        Kind.ASKED if number in _ASKED_TO_END else Kind.OWN,
        ending.time if ending else missed_at,
        f"{name(record)} (pid {record.pid})",
        f"{ended(ending.status if ending else None)}{stage}",
    )


def of_helpers(endings: Sequence[Ending], until: float) -> Iterable[Cause]:
    """Processes that are no ranks, and that a fatal signal has ended shortly before `until`."""
    for ending in endings:
        if ending.signal in _FATAL and until - ECHO_SECONDS <= ending.time:
            whom = f"process {ending.pid} ({ending.command}), which is no rank,"
            yield Cause(Kind.HELPER, ending.time, whom, ended(ending.status))


def standing(record: RankRecord, offset: float) -> Failure | None:
    """The exception that a rank has not gone on after; `offset`: as of `of_rank`."""
    for failure in (record.first_failure, record.last_failure):
        if failure is None:
            continue
        step = record.training.step if record.training else None
        if step is not None and failure.step is not None and step > failure.step:
            continue
        same_step = step is not None and step == failure.step
        if same_step or record.progress + offset <= failure.time + SETTLE_SECONDS:
            return failure
    return None


def name(record: RankRecord) -> str:
    """`rank 3`, `rank 0 of rollout`."""
    role = "" if record.role == "train" else f" of {record.role}"
    return f"rank {record.rank}{role}"


def oom_kills() -> int | None:
    """How many processes the kernel has killed for want of memory since boot; see `oom_kill` in
    `/proc/vmstat`."""
    try:
        with open("/proc/vmstat", "rb") as file:  # noqa: PTH123
            lines = dict(line.split() for line in file)
        return int(lines[b"oom_kill"])
    except (OSError, KeyError, ValueError):
        return None
