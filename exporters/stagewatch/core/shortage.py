"""What this process itself lacks: descriptors, memory, threads.

Whatever is done then fails at once, in every collector and for every client, so one line says it
for all of them.
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
"""How long all must have gone well before a shortage is worth another line."""


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error, or what it was raised from, is a lack of something of this process."""
    while error is not None:
        lacks = isinstance(error, OSError) and error.errno in ERRNOS
        no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
        if lacks or no_thread or isinstance(error, MemoryError):
            return True
        error = error.__cause__
    return False


class Shortages:
    """Says a shortage once, however many meet it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._quiet_until = float("-inf")

    def met(self, what: str) -> None:
        """Log what failed, unless that was said of another a short while ago."""
        with self._lock:
            now = self._clock()
            news = now > self._quiet_until
            self._quiet_until = now + SAY_AGAIN_SECONDS
        if news:
            log.warning("%s: the agent leaves out what it cannot do until that is over", what)


SHORTAGES = Shortages()
"""Those of this process."""
