"""Python stacks of ranks, by py-spy, without stopping the ranks; and which stacks are alike.

https://github.com/benfred/py-spy, with `--nonblocking`: a stack that is read while it changes may
be wrong, so there are several looks at a rank, and the stack of half of them counts.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from stagewatch.core.children.start import Child, Start, plainly
from stagewatch.core.children.supervisor import Supervisor
from stagewatch.core.errors import StagewatchError
from stagewatch.core.privileges.seccomp import RUN
from stagewatch.core.words import printable
from stagewatch.ranks.model import Rank
from stagewatch.ranks.stacks_child import ANSWER_SECONDS

MISSING = "py-spy is missing: pip install 'stagewatch[evidence]'"
NO_PROCESS = "its process is in a PID namespace not seen from here: run this on the host"
MAX_FRAME = 120
"""The most characters of a frame in a label."""

_STANDARD = r"^<(?!string>|stdin>)|/lib(?:64)?/python3[^/]*/(?!(?:site|dist)-packages/)"
_CLIENT = r"/stagewatch/(?:client/|record\.py)"
_OURS = rf"{_CLIENT}|/torchinductor_"
_ROOT = re.compile(r".*/(?:(?:site|dist)-packages|lib(?:64)?/python3[^/]*)/")
_LIBRARY = re.compile(rf"{_STANDARD}|{_OURS}|/(?:site|dist)-packages/")
_BENEATH = re.compile(rf"{_STANDARD}|{_OURS}|/(?:site|dist)-packages/(?:torch|stagewatch)/")


@dataclass(frozen=True, slots=True)
class Frame:
    """One call of a stack."""

    function: str
    file: str
    line: int

    @property
    def place(self) -> tuple[str, str]:
        """Path and function; the path is the same on all nodes, wherever a program is installed."""
        return self.function, PurePosixPath(self.file).name

    @property
    def module(self) -> str:
        """The path of the file within a library, or its name."""
        root = _ROOT.match(self.file)
        return self.file[root.end() :] if root else self.place[1]

    def __str__(self) -> str:
        function, file = self.place
        return printable(f"{file}:{self.line} in {function}", MAX_FRAME)


Frames = tuple[Frame, ...]
"""Frames of one thread, the innermost first."""


@dataclass(frozen=True, slots=True)
class Take:
    """The threads of a process at one look, or why they are not known."""

    threads: tuple[tuple[str, Frames], ...] = ()
    """Name and frames; the training thread comes first."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Stack:
    """The common part of several looks at one rank."""

    group: str = ""
    """Equal for ranks on the same line of the user's own code, in the same functions called from
    there; empty if no stack is known."""
    still: bool = False
    """Whether all looks saw the same functions, and at least half of them and at least two the same
    line."""
    frame: str = ""
    """The innermost frame of the user's own code: file, line and function."""
    threads: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Name and frames of each thread in the last look, the innermost first."""
    call: str = ""
    """The blocking call of a known library in every look, if there is one."""
    whom: str = ""
    """What this call waits for: a value of `ranks.waits.blocking_calls.Whom`."""
    problem: str = ""


class StackTaker:
    """Takes stacks in a child, which starts with the first question; `rest` ends it."""

    def __init__(self, *, program: str | None = None, start: Start = plainly) -> None:
        self._program = program or py_spy()
        child = taker(self._program)
        patience = ANSWER_SECONDS + 10.0
        self._child = Supervisor(
            "the taker of stacks", lambda: start(child), timeout=patience, start_timeout=patience
        )
        self._hung: set[tuple[int, int]] = set()

    @property
    def installed(self) -> bool:
        """Whether py-spy is installed."""
        return self._program is not None

    def take(self, ranks: Iterable[Rank]) -> dict[int, Take]:
        """The stacks of these ranks' processes by pid; this takes half a minute at most."""
        wanted = {rank.pid: rank for rank in ranks if rank.pid}
        if self._program is None:
            return dict.fromkeys(wanted, Take(problem=MISSING))
        hung = [pid for pid, rank in wanted.items() if (pid, rank.start_ticks or 0) in self._hung]
        takes = dict.fromkeys(hung, Take(problem="py-spy hung on it before, and is kept from it"))
        question = {
            "targets": [
                {"pid": pid, "start": rank.start_ticks or 0, "thread": rank.thread}
                for pid, rank in wanted.items()
                if pid not in takes
            ],
        }
        if not question["targets"]:
            return takes
        try:
            answers = self._child.ask(question, list)
        except StagewatchError as error:
            return takes | {pid: Take(problem=str(error)) for pid in wanted if pid not in takes}
        for answer in answers:
            pid = answer["pid"]
            if answer["hung"]:
                self._hung.add((pid, wanted[pid].start_ticks or 0))
            takes[pid] = _take(answer)
        return takes

    def rest(self) -> None:
        """End the child until the next question."""
        self._child.dismiss()

    def close(self) -> None:
        """End the child for good."""
        self._child.close()


def taker(program: str | None) -> Child:
    """The child that may run this py-spy, and no other program."""
    return Child("stagewatch.ranks.stacks_child", (program or "",), (RUN,))


def py_spy() -> str | None:
    """The path of py-spy, in PATH or beside this Python; `None` if it is not installed."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("py-spy") or shutil.which("py-spy", path=beside)


def stack(*looks: Take) -> Stack:
    """The stack of a rank's first thread in at least half of the looks, which come in order of
    time; if no stack is as frequent, the outermost frames that all looks share.

    Frames of our client, which only pass a call on, are left out."""
    threads = tuple(
        (
            printable(name),
            tuple(
                printable(f"{one.function} ({one.module}:{one.line})")
                for one in frames
                if not re.search(_CLIENT, one.file)
            ),
        )
        for name, frames in looks[-1].threads
    )
    first_threads = [look.threads[0][1] if look.threads else () for look in looks]
    if not first_threads[-1]:
        return Stack(threads=threads, problem=looks[-1].problem or "it has no Python frames")
    seen = [frames for frames in first_threads if frames]
    usual = _usual(seen)
    shared = usual or _shared(seen)
    own = users_own(shared)
    one_line = own is None or all(own in frames for frames in seen)
    # A loop has several lines, and a look sees one of them.
    at_a_line = len(seen) > 1 and (one_line or bool(usual))
    still = at_a_line and len({_places(frames) for frames in seen}) == 1
    line = own.line if own and (one_line or usual) else 0
    place = _places(shared[: shared.index(own) + 1] if own else shared)
    told = "\n".join(printable("\0".join(words)) for words in (*place, (str(line), "")))
    group = hashlib.sha256(told.encode()).hexdigest()[:8]
    return Stack(group, still, str(own) if own else "", threads)


def users_own(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame outside of all libraries, else outside of Python and PyTorch."""
    frames = tuple(frames)
    for beneath in (_LIBRARY, _BENEATH):
        for frame in frames:
            if not beneath.search(frame.file):
                return frame
    return None


def users_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame outside of all libraries."""
    return next((frame for frame in frames if not _LIBRARY.search(frame.file)), None)


def _usual(seen: Sequence[Frames]) -> Frames:
    """The frames of a look whose place at least half of the looks share; of several looks, at least
    two.  Empty without one: a loop of two lines shows either as often."""

    def key(frames: Frames) -> tuple[object, ...]:
        own = users_own(frames)
        # Further out ranks may differ by how they were started.
        return (own.line, *_places(frames[: frames.index(own) + 1])) if own else _places(frames)

    place, count = Counter(map(key, seen)).most_common(1)[0]
    if 2 * count < len(seen) or count < min(2, len(seen)):
        return ()
    return next(frames for frames in reversed(seen) if key(frames) == place)


def _shared(seen: Sequence[Frames]) -> Frames:
    """The frames of the last look, the outermost first, as far as all looks share the functions."""
    length = 0
    for places in zip(*(_places(frames)[::-1] for frames in seen), strict=False):
        if len(set(places)) > 1:
            break
        length += 1
    return seen[-1][len(seen[-1]) - length :]


def _places(frames: Frames) -> tuple[tuple[str, str], ...]:
    return tuple(frame.place for frame in frames)


def _take(answer: Mapping[str, Any]) -> Take:
    threads = tuple(
        (name, tuple(Frame(*frame) for frame in frames)) for name, frames in answer["threads"]
    )
    return Take(threads, printable(answer["problem"]))
