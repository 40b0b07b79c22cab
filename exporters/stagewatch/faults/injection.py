"""Carries out a plan: writes the journal, starts the watchdog, marks the fault, and undoes it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TextIO

from stagewatch.core.errors import SourceError, StagewatchError
from stagewatch.core.terminal import colours
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


_COLOURS = {"did": "31", "undone": "32", "would": "33", "then": "32", "note": "36", "failed": "31"}


class Screen:
    """Prints lines and a countdown; a closed terminal must not prevent undoing a fault."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._colours = colours(stream)
        self._counting = False

    def head(self, text: str) -> None:
        """A line that stands out."""
        self._write(f"\033[1m{text}\033[0m" if self._colours else text)

    def line(self, label: str, text: str) -> None:
        """A line with a label before it."""
        padded = f"{label:>7}"
        if self._colours:
            padded = f"\033[{_COLOURS.get(label, '0')}m{padded}\033[0m"
        self._write(f"{padded}  {text}")

    def countdown(self, seconds: float) -> None:
        """The time that is left, on a terminal only."""
        if self._terminal:
            self._counting = True
            self._put(f"\r\033[K{'':>7}  {seconds:.0f} s left (Ctrl-C ends it now)")

    def _write(self, text: str) -> None:
        if self._counting:
            self._put("\r\033[K")
            self._counting = False
        self._put(f"{text}\n")

    def _put(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


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
        self._screen = Screen(sys.stdout)
        self._marked = False
        self._failed = False
        self._watchdog: subprocess.Popen[str] | None = None

    def announce(self, kind: str) -> None:
        """Print the plan, its target, and what the user should know before it starts."""
        limit = f", for {self._seconds:g} s" if self._seconds else ""
        self._screen.head(f"{kind}: {self._plan.where}{limit}")
        for note in self._plan.notes:
            self._screen.line("note", note)

    def show(self) -> int:
        """Show what `run` would do, and do nothing; the exit status."""
        self._screen.line("would", f"write {self._file}, the marker")
        for step in self._plan.steps:
            for line in step.doing():
                self._screen.line("would", line)
        for step in reversed(self._plan.steps):
            for line in step.undoing():
                self._screen.line("then", line)
        self._screen.line("then", "close the marker")
        self._screen.head("dry run: nothing was done")
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
        self._screen.head(f"ended: {why}")
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
        self._screen.line("did", f"write {self._file}, the marker")
        with self._journal.locked(id) as (entry, lock):
            if entry is None:
                raise StagewatchError(f"fault {id} was cleared before it began")
            for step in self._plan.steps:
                step.do(Commands(id, environ=entry.environ, held=(lock,)))
                for line in step.doing():
                    self._screen.line("did", line)
        if self._seconds:
            self._screen.head(f"in force: {id}")

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
            self._screen.countdown(left)
            time.sleep(min(left, _LOOK_SECONDS))

    def _undo(self) -> bool:
        """Undo all; return whether that worked."""
        undone = True
        try:
            revert(self._journal, self._marker.id, lambda text: self._screen.line("undone", text))
        except SourceError as error:
            undone = False
            self._screen.line("failed", f"{error}; the watchdog goes on trying")
        if self._failed and self._marked and undone:  # there was no fault
            self._file.unlink(missing_ok=True)
        if self._watchdog is not None:
            if self._watchdog.stdin:
                self._watchdog.stdin.close()
            if undone:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._watchdog.wait(timeout=_READY_SECONDS)
        return undone
