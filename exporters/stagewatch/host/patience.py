"""Reads files of processes for which the kernel may make a reader wait.

A process that is stuck in execve(2), while it closes a file on a mount that does not answer, holds
its `exec_update_lock`.  Since the patch "proc: protect ptrace_may_access() with exec_update_lock"
(also in stable kernels, such as 6.18.44), readers of its `stat`, `wchan` or links like `ns/net` and
`fd/0` wait for that lock; only SIGKILL ends the wait.  So a thread reads, and if it does not return
within a moment, the caller goes on without it.

To hand a read to a thread takes longer than the read.  So the thread does several at a time: those
of many processes (`ask_each`), or all reads of one process.
"""

from __future__ import annotations

import _thread
import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from stagewatch.core.errors import SourceError

T = TypeVar("T")

MOMENT_SECONDS = 0.25
"""Timeout of an answer."""
BATCH_SECONDS = 0.05
"""How long a thread does several reads before it answers; well below `MOMENT_SECONDS`."""
BEGIN_SECONDS = 5.0
"""How long a thread may take to begin on an overloaded machine."""
MAX_WAITING_PER_USER = 16
"""Once so many processes of one user do not answer, his other processes are not read."""


def user_of(process: str) -> int | None:
    """The effective user of a process, a directory of `/proc`; `None` if it is gone or hidden.

    The owner of the directory, unlike that of its files, is also the user of a process that is not
    dumpable; see task_dump_owner() in fs/proc/base.c.
    """
    try:
        return os.stat(process).st_uid  # noqa: PTH116 - a fifth of the time of `Path.stat`
    except OSError:
        return None


class Patience:
    """Threads that read; a blocked one stays until its answer comes."""

    def __init__(
        self,
        user_of: Callable[[str], int | None],
        tell: Callable[[str], None] = lambda process: None,
    ) -> None:
        """`tell` is called with the first process that does not answer."""
        self._user_of = user_of
        self._tell = tell
        self._idle: list[_Asker] = []
        self._waiting: dict[_Asker, tuple[str, int | None]] = {}

    def ask(self, process: str, read: Callable[[], T], seconds: float = MOMENT_SECONDS) -> T | None:
        """The result of `read`; `None` if the process, a directory of `/proc`, does not answer.

        Raises `SourceError` if no thread can be started.
        """
        if getattr(_here, "process", None) == process:
            return read()  # this thread is the reader
        if self._is_left_alone(process):
            return None
        asker, answered = self._hand_over(partial(_answer, process, read), seconds)
        if answered:
            return self._take(asker)  # type: ignore[no-any-return]  # what `read` returned
        self._leave(asker, process)
        return None

    def ask_each(
        self, reads: Sequence[tuple[str, Callable[[], T]]], *, until: float = math.inf
    ) -> list[T | None]:
        """The results of reads of many processes; `None` also if a read raises `OSError`, or is not
        reached `until` a monotonic time.

        Raises `SourceError` if no thread can be started.
        """
        answers: list[T | None] = [None] * len(reads)
        left = deque(enumerate(reads))
        while left and time.monotonic() < until:
            batch = _Batch(left, answers, self._is_left_alone)
            asker, answered = self._hand_over(batch, MOMENT_SECONDS)
            if answered:
                self._take(asker)
            else:
                self._leave(asker, batch.process)
        return answers

    def silent(self) -> frozenset[str]:
        """The processes that have not answered yet and are not read."""
        if any(not asker.waits for asker in self._waiting):
            self._waiting = {each: of for each, of in self._waiting.items() if each.waits}
        return frozenset(process for process, _ in self._waiting.values())

    def _hand_over(self, read: Callable[[], Any], seconds: float) -> tuple[_Asker, bool]:
        """The thread that reads, and whether it has answered."""
        try:
            asker = self._idle.pop() if self._idle else _Asker()
            return asker, asker.ask(read, seconds)
        except (IndexError, RuntimeError, MemoryError) as error:
            raise SourceError(f"no thread can be started to read /proc: {error}") from error

    def _take(self, asker: _Asker) -> Any:
        """The results of a thread, which is free for others then."""
        try:
            return asker.answer()
        finally:
            self._idle.append(asker)

    def _leave(self, asker: _Asker, process: str) -> None:
        """Leave a thread to wait for this process."""
        if not self._waiting:
            self._tell(process)
        self._waiting = {**self._waiting, asker: (process, self._user_of(process))}

    def _is_left_alone(self, process: str) -> bool:
        if not self._waiting:
            return False
        if process in self.silent():
            return True
        waiting = Counter(user for _, user in self._waiting.values())
        crowd = {user for user, count in waiting.items() if count >= MAX_WAITING_PER_USER}
        return bool(crowd) and self._user_of(process) in crowd


_here = threading.local()
"""In a reading thread: `process`, whose files it reads."""


def _answer(process: str, read: Callable[[], T]) -> T:
    _here.process = process
    try:
        return read()
    finally:
        _here.process = None


class _Batch(Generic[T]):
    """Does one read after another, at least one, for `BATCH_SECONDS`."""

    def __init__(
        self,
        left: deque[tuple[int, tuple[str, Callable[[], T]]]],
        answers: list[T | None],
        is_left_alone: Callable[[str], bool],
    ) -> None:
        self._left = left
        self._answers = answers
        self._is_left_alone = is_left_alone
        self._until = time.monotonic() + BATCH_SECONDS
        self.process = ""
        """The process that is being read."""

    def __call__(self) -> None:
        while self._left and (not self.process or time.monotonic() < self._until):
            place, (self.process, read) = self._left.popleft()
            if not self._is_left_alone(self.process):
                try:
                    self._answers[place] = _answer(self.process, read)
                except OSError:
                    continue


class _Asker:
    """A thread that reads for others; one at a time uses it."""

    def __init__(self) -> None:
        self._read: Callable[[], Any] = bool
        self._result: Any = None
        self._error: BaseException | None = None
        self._asked = threading.Lock()
        self._answered = threading.Lock()
        self._deciding = threading.Lock()
        self._given_up = False
        self.waits = True
        """Whether the caller has given up on the read that still waits."""
        self._asked.acquire()
        self._answered.acquire()
        # Thread.start waits for ever if the thread dies in its first lines, for lack of memory.
        _thread.start_new_thread(self._run, ())

    def ask(self, read: Callable[[], Any], seconds: float) -> bool:
        """Whether the answer came in time; if not, the thread ends when it comes.

        Raises `MemoryError` if the thread has not begun.
        """
        self._read = read
        self._asked.release()
        if self._answered.acquire(timeout=seconds):
            return True
        if not self._asked.locked() and self._answered.acquire(timeout=BEGIN_SECONDS):
            return True  # the machine was too busy for the thread to begin
        with self._deciding:
            self._given_up = not self._answered.acquire(blocking=False)
            if self._given_up and not self._asked.locked():
                raise MemoryError("a thread does not begin")
            return not self._given_up

    def answer(self) -> Any:
        """The result of the last read; raises its exception."""
        result, error = self._result, self._error
        self._result = self._error = None
        if error is not None:
            raise error
        return result

    def _run(self) -> None:
        while not self._given_up:
            self._asked.acquire()
            try:
                self._result = self._read()
            except BaseException as error:  # for the one who asks
                self._error = error
            with self._deciding:
                self._answered.release()
        self.waits = False
