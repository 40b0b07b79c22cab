"""The processes of a command under `stagewatch run` that keeps no stage record.

A trainer and a worker that share a plain queue record nothing.  Then nothing shows who waits for
whom, but the place of each process in the code can be shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType

from stagewatch.core.errors import StagewatchError
from stagewatch.core.terminal import aligned
from stagewatch.core.words import ended, printable, whole
from stagewatch.host.guarded import Files
from stagewatch.host.procfs import ProcessStat, Procfs
from stagewatch.inspect.table import short_channel
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.limits import MIN_SECONDS
from stagewatch.ranks.model import Rank
from stagewatch.ranks.stacks import StackTaker, users_frame, users_own

RUN_ID = "STAGEWATCH_RUN_ID="
MAX_SHOWN = 16
STILL_CPU = 0.02
"""CPU use, of all processes together, up to which they count as standing still."""
MAX_COMMAND = 48
MAX_PLACES = 3
"""The most places in the user's own code that are shown for one process."""

_TITLES = ("PID", "STATE", "WCHAN", "COMMAND", "AT")
_STATES = {"S": "sleeps", "R": "runs", "D": "in a call", "T": "stopped", "t": "traced", "I": "idle"}


@dataclass(frozen=True, slots=True)
class Command:
    """The processes that one `stagewatch run` has started."""

    name: str
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """The text on commands whose processes keep no record."""

    lines: Sequence[str]
    still: bool
    """Whether all processes of one command stand still."""


class Commands:
    """The commands under `stagewatch run` on this node that we may look at."""

    def __init__(self, proc: Procfs, files: Files) -> None:
        self._proc = proc
        self._files = files
        self._began = time.monotonic()
        self._commands = _commands(proc, files)
        self._before = {one: proc.stats(one.pids) for one in self._commands}

    def without_record(
        self, ranks: Iterable[Rank], facts: Sequence[RankFacts], job: str = ""
    ) -> Unrecorded:
        """The text on commands whose processes have shown no progress lately; `job`: only those of
        a job."""
        seconds = time.monotonic() - self._began
        kept = {rank.pid for rank in ranks if rank.record is not None}
        mine = [one for one in self._commands if job in ("", one.name)]
        mine = [one for one in mine if not _has_progress(kept & set(one.pids), facts)]
        everything = self._proc.stats(self._proc.pids()) if mine else {}
        zombies = {pid: stat.parent for pid, stat in everything.items() if stat.state == "Z"}
        told: list[str] = []
        any_still = False
        for one in mine:
            after = self._proc.stats(one.pids)
            still = stand_still(self._before[one], after, seconds)
            any_still |= still
            count = len(one.pids)
            them = f"its {count} processes" if count > 1 else "its only process"
            what = f"{them} {'are' if count > 1 else 'is'} at work, and no rank keeps a record"
            if still:
                none = (
                    f"none of {them} has done anything" if count > 1 else f"{them} has done nothing"
                )
                what = f"{none} for {whole(seconds)}; nothing shows who waits for whom"
            with closing(StackTaker()) as taker:
                dead = [pid for pid, parent in zombies.items() if parent in one.pids]
                rows = lines([*one.pids, *dead], self._proc, self._files, taker)
            told += ["", *rows, "", f"command {one.name}: {what}"]
        return Unrecorded(told, any_still)


def _has_progress(kept: set[int], facts: Iterable[RankFacts]) -> bool:
    """Whether a rank of these has made progress lately, or is in a stage, which has a budget."""
    return any(
        (fact.progress_age_seconds or 0.0) < MIN_SECONDS or fact.stage not in (None, "idle")
        for fact in facts
        if fact.pid in kept
    )


def _commands(proc: Procfs, files: Files) -> list[Command]:
    read = _read(files, "environ", proc.pids(), (RUN_ID,))
    found: dict[str, list[int]] = {}
    for pid, environ in sorted(read.items()):
        name = environ.decode("utf-8", "replace").strip("\0").removeprefix(RUN_ID)
        if re.fullmatch(r"run-\d{1,10}-[\w.-]{1,64}", name):
            found.setdefault(name, []).append(pid)
    return [Command(name, tuple(pids)) for name, pids in found.items()]


def _read(
    files: Files, file: str, pids: Iterable[int], prefixes: Sequence[str] = ()
) -> Mapping[int, bytes]:
    """The content of a file of each process, as far as it may be read; none if the reader does not
    answer."""
    try:
        read = files.read(file, pids, prefixes)
    except StagewatchError:
        return {}
    return {pid: content for pid, content in read.items() if content is not None}


def stand_still(
    before: Mapping[int, ProcessStat], after: Mapping[int, ProcessStat], seconds: float
) -> bool:
    """Whether no process did anything between two looks so many seconds apart."""
    lived = [stat for stat in after.values() if stat.state not in "ZX"]
    busy = any(stat.state in "RD" for stat in lived)
    used = sum(map(_cpu, lived)) - sum(_cpu(before[pid]) for pid in after if pid in before)
    return bool(lived) and not busy and used <= STILL_CPU * seconds


def _cpu(stat: ProcessStat) -> float:
    return stat.user_seconds + stat.system_seconds


def lines(
    pids: Iterable[int],
    proc: Procfs,
    files: Files,
    taker: StackTaker,
    names: Mapping[tuple[int, int], str] = MappingProxyType({}),
) -> list[str]:
    """A line for each process: state, kernel function that it sleeps in, command, place in the
    code.

    `names`: the names of ranks by pid and start."""
    shown = sorted(pids)[:MAX_SHOWN]
    stats = proc.stats(shown)
    living = [pid for pid, stat in stats.items() if stat.state not in "ZX"]
    texts = _read(files, "cmdline", living)
    places = _places(stats, taker) if taker.installed else {}
    rows = [_TITLES]
    for pid, stat in stats.items():
        gone = stat.state in "ZX"
        words = (texts.get(pid) or b"").replace(b"\0", b" ").decode("utf-8", "replace").strip()
        words = re.sub(r"^\S*/", "", words)  # what is run counts, and not which interpreter
        status = proc.exit_status(pid) if gone else None
        rows.append(
            (
                ", ".join([str(pid), *filter(None, [names.get((pid, stat.start_ticks))])]),
                ended(status) if gone else _STATES.get(stat.state, stat.state),
                "-" if gone else short_channel(proc.wait_channel(pid, pid)) or "-",
                printable(words or stat.command, MAX_COMMAND),
                places.get(pid, "-"),
            )
        )
    return aligned(rows)


def _places(stats: Mapping[int, ProcessStat], taker: StackTaker) -> dict[int, str]:
    """For each Python process, the lines of the user's own code that its threads are at; the
    training thread comes first."""
    asked = [
        Rank("", "", 0, pid, start_ticks=stat.start_ticks)
        for pid, stat in stats.items()
        if stat.state not in "ZX"
    ]
    try:
        takes = taker.take(asked)
    except StagewatchError:
        return {}
    places = {}
    for pid, take in takes.items():
        stacks = [frames for _, frames in take.threads]
        found = [*map(users_own, stacks[:1]), *map(users_frame, stacks[1:])]
        places[pid] = list(dict.fromkeys(str(frame) for frame in found if frame is not None))
    return {pid: "; ".join(own[:MAX_PLACES]) for pid, own in places.items() if own}
