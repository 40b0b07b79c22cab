"""Shortages of this process: descriptors, memory, threads.

Then everything fails at once, in every collector and for every client, so one log line reports it
for all.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
SAY_AGAIN_SECONDS = 60.0
"""How long everything must have worked before a shortage is logged again."""


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error, or its cause, is a shortage of this process."""
    while error is not None:
        lacks = isinstance(error, OSError) and error.errno in ERRNOS
        no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
        if lacks or no_thread or isinstance(error, MemoryError):
            return True
        error = error.__cause__
    return False


class Shortages:
    """Logs a shortage once, however often it occurs."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._quiet_until = float("-inf")

    def met(self, what: str) -> None:
        """Log what failed, unless a shortage was logged a short while ago."""
        with self._lock:
            now = self._clock()
            news = now > self._quiet_until
            self._quiet_until = now + SAY_AGAIN_SECONDS
        if news:
            log.warning("%s: the agent leaves out what it cannot do until that is over", what)


SHORTAGES = Shortages()
"""The shortages of this process."""
