"""Carries out a plan: writes the journal, starts the watchdog, marks the fault, and undoes it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import FrameType

from stagewatch.core.errors import SourceError, StagewatchError
from stagewatch.faults import markers
from stagewatch.faults.journal import Entry, Journal
from stagewatch.faults.markers import Marker
from stagewatch.faults.plan import Plan
from stagewatch.faults.processes import Identity
from stagewatch.faults.tools import ENDING, Commands, kept
from stagewatch.faults.undo import namespace_of, revert
from stagewatch.host.procfs import Procfs

_LOOK_SECONDS = 1.0
_READY_SECONDS = 30.0


def say(text: str) -> None:
    """Print a line; a closed terminal must not prevent undoing a fault."""
    with contextlib.suppress(OSError, ValueError):
        print(text, flush=True)


def say_step(label: str, text: str) -> None:
    """Print a line with a label before it."""
    say(f"{label:>7}  {text}")


class Ended(BaseException):
    """A signal that ends the injection early."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Injection:
    """One fault, from the plan until it is undone."""

    def __init__(
        self, plan: Plan, seconds: float, marker: Marker, fault_dir: Path, journal: Journal
    ) -> None:
        self._plan = plan
        self._seconds = seconds
        self._marker = marker
        self._file = fault_dir / f"{marker.id}.json"
        self._journal = journal
        self._marked = False
        self._failed = False
        self._watchdog: subprocess.Popen[str] | None = None

    def announce(self, kind: str) -> None:
        """Print the plan, its target, and what the user should know before it starts."""
        limit = f", for {self._seconds:g} s" if self._seconds else ""
        say(f"{kind}: {self._plan.where}{limit}")
        for note in self._plan.notes:
            say_step("note", note)

    def show(self) -> int:
        """Show what `run` would do, and do nothing; the exit status."""
        say_step("would", f"write {self._file}, the marker")
        for step in self._plan.steps:
            for line in step.doing():
                say_step("would", line)
        for step in reversed(self._plan.steps):
            for line in step.undoing():
                say_step("then", line)
        say_step("then", "close the marker")
        say("dry run: nothing was done")
        return 0

    def run(self) -> int:
        """Inject, hold and undo the fault; the exit status.

        Raises `StagewatchError` if it could not begin.
        """
        id = self._marker.id
        self._journal.prepare()
        taken = {marker.id for marker in markers.markers_in(self._file.parent)}
        if id in taken or self._journal.path(id).exists():
            raise StagewatchError(f"there is a fault {id} already: give another --id")
        for number in ENDING:
            signal.signal(number, self._end)
        try:
            self._begin()
            status, why = self._hold()
        except Ended as ended:
            status, why = 128 + ended.number, f"{ended} came"
        except StagewatchError:
            self._failed = True
            raise
        finally:
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)
            undone = self._undo()
        say(f"ended: {why}")
        return status if undone else status or 1

    def _end(self, number: int, frame: FrameType | None) -> None:
        for ending in ENDING:
            signal.signal(ending, signal.SIG_IGN)
        raise Ended(number)

    def _begin(self) -> None:
        """Write the journal, start the watchdog, mark the fault, and do its steps."""
        id = self._marker.id
        self._journal.write(
            Entry(
                id=id,
                fault_dir=str(self._file.parent.resolve()),
                boot_id=Procfs().boot_id(),
                network_namespace=namespace_of(),
                owner=Identity.of(os.getpid()),
                steps=self._plan.steps,
                environ=kept(os.environ),
            )
        )
        self._watch()
        markers.open_marker(self._marker, self._file.parent)
        self._marked = True
        say_step("did", f"write {self._file}, the marker")
        with self._journal.locked(id) as (entry, lock):
            if entry is None:
                raise StagewatchError(f"fault {id} was cleared before it began")
            for step in self._plan.steps:
                step.do(Commands(id, environ=entry.environ, held=(lock,)))
                for line in step.doing():
                    say_step("did", line)
        if self._seconds:
            say(f"in force: {id}")

    def _watch(self) -> None:
        """Start the watchdog and wait until it is ready."""
        seconds = str(self._seconds)
        argv = [sys.executable, "-m", "stagewatch.faults.undo"]
        self._watchdog = watchdog = subprocess.Popen(
            [*argv, str(self._journal.directory.resolve()), self._marker.id, seconds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd="/",
            start_new_session=True,
        )
        timer = threading.Timer(_READY_SECONDS, watchdog.kill)
        timer.start()
        try:
            ready = watchdog.stdout.readline() if watchdog.stdout else ""
        finally:
            timer.cancel()
        if ready != "ready\n":
            raise SourceError("the watchdog does not start; nothing is injected without one")

    def _hold(self) -> tuple[int, str]:
        """Wait for the end of the fault; the exit status and why it ended."""
        begun = time.clock_gettime(time.CLOCK_BOOTTIME)
        while True:
            elapsed = time.clock_gettime(time.CLOCK_BOOTTIME) - begun
            left = self._seconds - elapsed
            if left <= 0:
                return 0, "its time is over" if self._seconds else "it is done"
            if not self._journal.path(self._marker.id).exists():
                return 1, f"it was cleared by another command after {elapsed:.0f} s"
            if self._watchdog is None or self._watchdog.poll() is not None:
                return 1, f"its watchdog was killed after {elapsed:.0f} s"
            for step in self._plan.steps:
                if over := step.over():
                    return 1, f"{over}, after {elapsed:.0f} s"
            time.sleep(min(left, _LOOK_SECONDS))

    def _undo(self) -> bool:
        """Undo all; return whether that worked."""
        undone = True
        try:
            revert(self._journal, self._marker.id, partial(say_step, "undone"))
        except SourceError as error:
            undone = False
            say_step("failed", f"{error}; the watchdog goes on trying")
        if self._failed and self._marked and undone:  # there was no fault
            self._file.unlink(missing_ok=True)
        if self._watchdog is not None:
            if self._watchdog.stdin:
                self._watchdog.stdin.close()
            if undone:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._watchdog.wait(timeout=_READY_SECONDS)
        return undone
