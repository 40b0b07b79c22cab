"""Keeps the client from harming a trainer: few warnings, no errors, odd arguments made to fit."""

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
    """Log one warning per subject; a trainer's log is not ours to fill.  Never raises."""
    if subject not in _warned:
        _warned.add(subject)
        with contextlib.suppress(Exception):
            text = f"stagewatch: {what}: {why}"
            # A program that has not imported it has not said where warnings go, and one that has
            # given up its rights may not be able to: then it is done as `logging.lastResort` does.
            logging = sys.modules.get("logging")
            if logging is None:
                print(text, file=sys.stderr)
            else:
                logging.getLogger("stagewatch").warning("%s", text)


def swallow(what: str, error: BaseException) -> None:
    """Warn of an exception that our own code raised and that is being handled.

    Raises it again if it is the trainer's: KeyboardInterrupt and the like, or one that a signal
    handler (a time-out's) raised while our code happened to run.
    """
    if not isinstance(error, Exception) or _is_from_handler(error):
        raise error
    warn_once(what, error)


def step_aside(error: BaseException) -> None:
    """Take our own frames off the top of a traceback that passes through us.

    From Python 3.11 on; before, a bare `raise` restores what it had.
    """
    top = error.__traceback__
    while top is not None and top.tb_frame.f_code.co_filename.startswith(_OURS):
        top = top.tb_next
    error.__traceback__ = top


def whole_step(step: object) -> int | None:
    """The step as the record can hold it; None, with a warning, where it cannot.  Never raises."""
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
    """The code that runs when a handler is called: a function's, a method's, an object's."""
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    for function in (handler, getattr(type(handler), "__call__", None)):  # noqa: B004
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
