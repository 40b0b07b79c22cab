"""Signals as a stream of numbers, for the main thread to wait on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator


def incoming(*numbers: signal.Signals) -> Iterator[signal.Signals]:
    """These signals from now on, as they come; to be called in the main thread.

    A handler that sets an Event will not do: it may run while the main thread holds that event's
    lock on its way into `wait`, and never return; or before the thread has gone to sleep, and be
    missed.  The interpreter's wake-up descriptor knows neither: what is written stays to be read.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)

    def stream() -> Iterator[signal.Signals]:
        while True:
            yield signal.Signals(os.read(reader, 1)[0])

    return stream()
