"""Who a process is, so that a signal never reaches another one that was given its number."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.errors import StagewatchError
from stagewatch.host.procfs import Procfs

TAG = "STAGEWATCH_FAULT_ID"
"""Set in the environment of every helper of an injection, which is how they are found again."""


class Gone(StagewatchError):
    """The process has ended."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A process: its number and when it was started, in clock ticks since boot."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Identity:
        """The process that has this number now.  Raises `Gone` where there is none."""
        stat = Procfs().stat(pid)
        if stat is None or stat.state in "ZX":
            raise Gone(f"there is no process {pid} on this machine")
        return cls(pid, stat.start_ticks)

    @property
    def alive(self) -> bool:
        """Whether it runs still; a zombie does not."""
        with contextlib.suppress(Gone):
            return Identity.of(self.pid) == self
        return False

    @property
    def state(self) -> str:
        """The kernel's letter for it, empty once it is gone; see proc(5)."""
        stat = Procfs().stat(self.pid)
        return stat.state if stat and stat.start_ticks == self.start_ticks else ""

    def send(self, number: signal.Signals) -> None:
        """Signal this process and no other.  Raises `Gone`, or `PermissionError`."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError as error:
            raise Gone(f"process {self.pid} has ended") from error
        try:
            if not self.alive:  # asked while the handle keeps the number from being given away
                raise Gone(f"process {self.pid} has ended")
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError as error:
            raise Gone(f"process {self.pid} has ended") from error
        finally:
            os.close(handle)


def boot_id() -> str:
    """Tells one run of the kernel from the next."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def tagged(id: str) -> list[Identity]:
    """The helpers of an injection that run still: they have its id in their environment."""
    wanted = f"{TAG}={id}".encode()
    found = []
    for pid in Procfs().pids():
        with contextlib.suppress(OSError, Gone):
            identity = Identity.of(pid)
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            if pid != os.getpid() and wanted in environ.split(b"\0"):
                found.append(identity)
    return found
