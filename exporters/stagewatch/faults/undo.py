"""Undoes an injection: for the injector itself, its watchdog or a later command.

`python -m stagewatch.faults.undo DIRECTORY ID SECONDS` is the watchdog, which undoes a fault if its
injector cannot.  Its standard input ends with the injector, however that ends.  It prints a line
when it is ready.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from stagewatch.core.errors import NoData, SourceError, StagewatchError
from stagewatch.faults.journal import Entry, Journal
from stagewatch.faults.kinds import STEPS
from stagewatch.faults.markers import clear, read_markers
from stagewatch.faults.plan import Step
from stagewatch.faults.tools import ENDING, Commands
from stagewatch.host.procfs import Procfs

Say = Callable[[str], None]

GRACE_SECONDS = 5.0
"""How long after the fault's time the watchdog leaves the undoing to the injector."""
_PAUSE_SECONDS = 5.0
_TRIES = 720
"""Enough tries for an hour, since a Slurm controller may be down; then the next command tries."""


def revert(journal: Journal, id: str, say: Say) -> bool:
    """Undo the rest of an injection and close its marker.

    False if it has been undone already.  Raises `SourceError` if something could not be undone:
    then the entry stays, and undoing can be tried again.
    """
    with journal.locked(id) as (entry, lock):
        if entry is None:
            return False
        problems = []
        for step, prefix in _to_undo(entry):
            commands = Commands(id, environ=entry.environ, prefix=prefix, held=(lock,))
            try:
                for line in step.undo(commands):
                    say(line)
            except (StagewatchError, OSError) as error:
                problems.append(str(error))
        if problems:
            raise SourceError(f"fault {id} is not undone yet: {'; '.join(problems)}")
        with contextlib.suppress(NoData):
            for marker in read_markers(Path(entry.fault_dir))[0]:
                if marker.id == id:
                    clear(marker, Path(entry.fault_dir))
        journal.remove(id)
        return True


def revert_abandoned(journal: Journal, say: Say) -> None:
    """Undo injections whose owner was killed, and those from before a reboot."""
    try:
        ids = journal.ids()
    except SourceError as error:
        say(str(error))
        return
    for id in ids:
        try:
            entry = journal.read(id)
            if entry is None or (entry.boot_id == Procfs().boot_id() and entry.owner.alive):
                continue
            say(f"fault {id} was left behind; undoing it:")
            revert(journal, id, say)
        except SourceError as error:
            say(str(error))


def namespace_of(pid: int | None = None) -> int:
    """The inode of a process's network namespace, or of our own; 0 if it cannot be read."""
    return Procfs().network_namespace(pid or os.getpid()) or 0


def _to_undo(entry: Entry) -> list[tuple[Step, tuple[str, ...]]]:
    """The steps, the last one first, with the arguments to put before their commands."""
    same_boot = entry.boot_id == Procfs().boot_id()
    prefix = _enter(entry.network_namespace) if same_boot else ()
    return [
        (step, prefix or ())
        for step in reversed(entry.steps)
        if same_boot or step.survives_reboot
        if prefix is not None or not step.in_network_namespace  # rules go with their namespace
    ]


def _enter(namespace: int) -> tuple[str, ...] | None:
    """The arguments that run a command in a network namespace; `None` once that is gone."""
    if namespace == namespace_of():
        return ()
    for pid in Procfs().pids():
        if namespace_of(pid) == namespace:
            return ("nsenter", f"--net=/proc/{pid}/ns/net", "--")
    return None


def main(directory: Path, id: str, seconds: float) -> None:
    """Wait for the end of the injector or of the fault, or for a signal; then undo the rest."""
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
