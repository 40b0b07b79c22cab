"""The one warning a process gets, and what may be swallowed after it."""

from __future__ import annotations

import contextlib
import logging
from types import CodeType
from typing import Any

log = logging.getLogger("stagewatch")

_warned = False


def warn_once(what: str, why: object) -> None:
    """Log a warning the first time; a trainer's log is not ours to fill.  Never raises."""
    global _warned  # noqa: PLW0603
    if not _warned:
        _warned = True
        with contextlib.suppress(Exception):
            log.warning("stagewatch: %s", f"{what}: {why}")


def swallow(what: str, error: BaseException) -> None:
    """Warn of an error of our own making, while it is being handled.

    One that came out of a signal handler at just that moment, a time-out's, is the trainer's: it
    goes on, as do KeyboardInterrupt and the like.
    """
    if not isinstance(error, Exception) or _is_from_handler(error):
        raise error
    warn_once(what, error)


def _is_from_handler(error: BaseException) -> bool:
    import signal

    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    """The code that runs when a handler is called: a function's, a method's, an object's."""
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    for function in (handler, getattr(type(handler), "__call__", None)):  # noqa: B004
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
