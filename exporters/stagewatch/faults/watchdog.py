"""Undoes a fault when its injector can not: `python -m stagewatch.faults.watchdog DIRECTORY ID
SECONDS`.

Its standard input ends when the injector does, in whatever way.  It says a line when it is ready.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

from stagewatch.errors import SourceError
from stagewatch.faults.commands import ENDING
from stagewatch.faults.journal import Journal
from stagewatch.faults.kinds import STEPS
from stagewatch.faults.revert import revert

GRACE_SECONDS = 5.0
"""After the fault's time: the injector, if it can, undoes it itself."""
_PAUSE_SECONDS = 5.0
_TRIES = 720
"""For an hour, as a controller that is down; after it the next command tries."""


def main(directory: Path, id: str, seconds: float) -> None:
    """Wait for the injector's end, or the fault's, or to be ended; then undo what is left."""
    for number in ENDING:
        signal.signal(number, lambda *_: None)  # ends the waiting: see the pipe below
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    journal = Journal(directory, STEPS)
    print("ready", flush=True)
    limit = time.clock_gettime(time.CLOCK_BOOTTIME) + seconds + GRACE_SECONDS
    while (left := limit - time.clock_gettime(time.CLOCK_BOOTTIME)) > 0:
        if select.select([0, wake], [], [], min(left, 1.0))[0]:
            break
        if not journal.path(id).exists():
            return
    for _ in range(_TRIES):
        try:
            revert(journal, id, lambda text: None)
            return
        except SourceError as error:
            with contextlib.suppress(OSError):
                print(error, file=sys.stderr, flush=True)
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
