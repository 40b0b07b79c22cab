"""Causes of the death of a command: from the records of its processes, their exit statuses and the
kernel log."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from types import MappingProxyType

from stagewatch.core.errors import SourceError
from stagewatch.core.words import ended
from stagewatch.died.causes import ECHO_SECONDS, Cause, Death, Kind
from stagewatch.died.lines import of_exception, of_line
from stagewatch.judgement.limits import SETTLE_SECONDS
from stagewatch.kernel_log.lines import OomCause, OomKill, parse_oom
from stagewatch.kernel_log.reader import Kmsg
from stagewatch.ranks.records import Failure, Life, RankRecord
from stagewatch.run.endings import Ending

Names = Mapping[tuple[int, int], str]
"""Of ranks, by pid and start in ticks since the boot."""
ASKED_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
FATAL = {
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE),
    *(signal.SIGILL, signal.SIGSYS, signal.SIGTRAP),
}
_XID_PID = re.compile(r"\bpid='?(\d{1,10})")


def of_rank(
    record: RankRecord, ending: Ending | None, missed_at: float, offset: float
) -> Cause | None:
    """The cause of the end of a rank, or of its standstill.

    `missed_at`: when it was first seen to be gone, Unix time; `offset`: seconds from
    `CLOCK_BOOTTIME` to Unix time.
    """
    failure = standing(record, offset)
    if failure is not None:
        told = f"{failure.error}: {failure.message}" if failure.message else failure.error
        stage = "" if failure.stage == "idle" else f" in {failure.stage}"
        step = "" if failure.step is None else f" at step {failure.step}"
        means = of_exception(told)
        where = f",{stage}{step}" if stage or step else ""
        what = f"{told}{where}"
        return Cause(
            Kind.LEFT if means.kind is Kind.STATUS else means.kind,
            failure.time,
            rank_name(record),
            what,
            means.death,
            means.sure,
            record.rank,
            ended=ending.time if ending else inf,
        )
    if record.life is Life.CLOSED:
        # Its peers may notice before its process has ended.
        time = record.closed_at + offset if record.closed_at else missed_at
        whom = f"{rank_name(record)} (pid {record.pid})"
        what = ended(ending.status) if ending and ending.status else "it ended well"
        return Cause(Kind.LEFT, time, whom, what, rank=record.rank)
    if record.life is not Life.GONE:
        return None
    number = ending.signal if ending else 0
    stage = f" in {record.open.stage}" if record.open else ""
    reached = record.training.step if record.training else None
    step = "" if reached is None else f" at step {reached}"
    return Cause(
        Kind.ASKED if number in ASKED_TO_END else Kind.OWN,
        ending.time if ending else missed_at,
        f"{rank_name(record)} (pid {record.pid})",
        f"{ended(ending.status if ending else None)}{stage}{step}",
        *_death(number),
        record.rank,
        killed=number in FATAL,
    )


def asked(status: int) -> int:
    """The signal by which a command was asked to end; 0 for other ends.

    `status`: as `os.waitpid` gives it; an exit status of 128 plus the number, as of shells,
    counts."""
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else code - 128
    return number if number in ASKED_TO_END else 0


def _death(number: int) -> tuple[Death, bool]:
    """The death that a signal suggests, and whether it is sure: SIGKILL has many senders."""
    if number == signal.SIGINT:
        return Death.USER, True
    if number in ASKED_TO_END:
        return Death.PREEMPTION, False
    return (Death.HOST_MEMORY, False) if number == signal.SIGKILL else (Death.CODE, True)


def of_helpers(
    endings: Sequence[Ending],
    until: float,
    *,
    apart: bool,
    names: Names = MappingProxyType({}),
) -> Iterable[Cause]:
    """The causes of processes that a fatal signal ended shortly before `until`.

    `apart`: they are known to be no ranks; `names`: the names of ranks without a record."""
    for ending in endings:
        if ending.signal in FATAL and until - ECHO_SECONDS <= ending.time:
            bare = (ending.pid, ending.start_ticks) in names
            yield Cause(
                Kind.HELPER,
                ending.time,
                f"{process_name(ending, names)}{', which is not a rank,' * (apart and not bare)}",
                ended(ending.status),
                *_death(ending.signal),
            )


def process_name(ending: Ending, names: Names) -> str:
    """`rank 1 (pid 4711)`, by the names of ranks without a record, or `process 4711 (python)`."""
    name = names.get((ending.pid, ending.start_ticks))
    return f"{name} (pid {ending.pid})" if name else f"process {ending.pid} ({ending.command})"


def of_kernel(log: Kmsg, since: float, names: Mapping[int, str]) -> Iterator[Cause]:
    """The causes in the kernel log since a Unix time: what the kernel did to the processes in
    `names`, and GPU errors that name no other process.  None if the log may not be read."""
    try:
        records = [one for one in log.read() if one.facility == 0 and one.time >= since]
    except SourceError:
        return
    for record in records:
        kill, means = parse_oom(record.text), of_line(record.text)
        told = _XID_PID.search(record.text)
        pid = kill.pid if isinstance(kill, OomKill) else int(told[1]) if told else None
        ours = pid in names or (pid is None and "NVRM" in record.text)
        if means is not None and ours and not isinstance(kill, OomCause):
            whom = "a GPU" if pid is None else names[pid]
            yield Cause(Kind.OWN, record.time, whom, record.text, means.death)


def standing(record: RankRecord, offset: float) -> Failure | None:
    """The exception after which a rank has not gone on; `offset`: as in `of_rank`."""
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


def rank_name(record: RankRecord) -> str:
    """`rank 3`, `rank 0 of rollout`."""
    role = "" if record.role == "train" else f" of {record.role}"
    return f"rank {record.rank}{role}"


def oom_kills() -> int | None:
    """The number of processes that the kernel has killed for lack of memory since boot; see
    `oom_kill` in `/proc/vmstat`."""
    try:
        with open("/proc/vmstat", "rb") as file:  # noqa: PTH123
            lines = dict(line.split() for line in file)
        return int(lines[b"oom_kill"])
    except (OSError, KeyError, ValueError):
        return None
