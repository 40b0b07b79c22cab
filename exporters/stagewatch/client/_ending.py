"""How a process ends: on purpose, or by an exception that nobody caught."""

from __future__ import annotations

import sys
from collections.abc import Callable


def on_purpose(error: BaseException) -> bool:
    """Whether an exception steers the flow rather than tells of a failure."""
    if isinstance(error, SystemExit):
        return error.code in (None, 0)
    if isinstance(error, (GeneratorExit, StopIteration, StopAsyncIteration, KeyboardInterrupt)):
        return True
    return type(error).__name__ == "CancelledError"  # by name: asyncio takes long to import


def fatal_error() -> BaseException | None:
    """While the interpreter exits: the exception that ends it, if it is one of failure."""
    error = sys.exc_info()[1]  # what ends a child of multiprocessing is still in flight
    if error is None and not hasattr(sys, "ps1"):  # interactive sessions outlive their errors
        error = getattr(sys, "last_value", None)
    return None if error is None or on_purpose(error) else error


def before_child_exits(call: Callable[[], None]) -> None:
    """Children of multiprocessing skip `atexit`; they have finalizers of their own."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, call, exitpriority=0)
