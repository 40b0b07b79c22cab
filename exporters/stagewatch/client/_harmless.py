"""Prevents harm to a trainer: few warnings, no errors, odd arguments made to fit."""

from __future__ import annotations

import contextlib
import sys
from types import CodeType
from typing import Any

MAX_STEP = 2**63 - 1
_OURS = __file__.rpartition("_")[0]
"""Where the files of the client lie."""

_warned: set[str] = set()


def warn_once(what: str, why: object, subject: str = "") -> None:
    """Log one warning per subject, so that the trainer's log is not filled.  Never raises."""
    if subject not in _warned:
        _warned.add(subject)
        with contextlib.suppress(Exception):
            text = f"stagewatch: {what}: {why}"
            # A program without `logging` has not configured warnings, and one that has dropped its
            # rights # may be unable to import it: then write as `logging.lastResort` does.
            logging = sys.modules.get("logging")
            if logging is None:
                print(text, file=sys.stderr)
            else:
                logging.getLogger("stagewatch").warning("%s", text)


def swallow(what: str, error: BaseException) -> None:
    """Warn about an exception of our own code that is being handled.

    Raises it again if it belongs to the trainer: a KeyboardInterrupt or similar, or an exception of
    a signal handler (a timeout's) that ran during our code.
    """
    if not isinstance(error, Exception) or _is_from_handler(error):
        raise error
    warn_once(what, error)


def step_aside(error: BaseException) -> None:
    """Remove our own frames from a traceback that passes through us.

    From Python 3.11 on; before, a bare `raise` restores what it had.
    """
    top = error.__traceback__
    while top is not None and top.tb_frame.f_code.co_filename.startswith(_OURS):
        top = top.tb_next
    error.__traceback__ = top


def whole_step(step: object) -> int | None:
    """The step as a number for the record; None, with a warning, if it is not one.  Never
    raises."""
    try:
        number = int(step)  # type: ignore[call-overload]
        if -1 <= number <= MAX_STEP:
            return int(number)
        warn_once("a step was not recorded", f"{number} does not fit into 63 bits")
    except Exception as error:
        swallow("a step was not recorded", error)
    return None


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
    """The code of a handler that is a function, a method or a callable object."""
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    for function in (handler, getattr(type(handler), "__call__", None)):  # noqa: B004
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
