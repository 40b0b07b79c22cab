"""A stopped process, and a killed one."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from stagewatch.core.collector import NoOptions
from stagewatch.core.errors import StagewatchError
from stagewatch.faults import processes
from stagewatch.faults.plan import Kind, Plan, Request, Step
from stagewatch.faults.tools import Commands

_STOP_SECONDS = 5.0
"""How long a process with many threads may take to stop."""
_END_SECONDS = 1.0
"""How long a process that no longer stands still may be one that was killed: it runs once more."""


@dataclass(frozen=True, slots=True)
class Stop(Step):
    """Stops a process, and continues it."""

    pid: int
    start_ticks: int

    def doing(self) -> list[str]:
        return [f"kill -STOP {self.pid}"]

    def undoing(self) -> list[str]:
        same = f"if it is still the one that started at tick {self.start_ticks}"
        return [f"kill -CONT {self.pid} ({same})"]

    def do(self, commands: Commands) -> None:
        self._identity.send(signal.SIGSTOP)
        self._settle(_STOP_SECONDS)

    def undo(self, commands: Commands) -> list[str]:
        try:
            self._identity.send(signal.SIGCONT)
        except processes.Gone as error:
            return [f"{error}: nothing is left to continue"]
        return [f"kill -CONT {self.pid}"]

    def over(self) -> str:
        self._settle(_END_SECONDS)
        state = self._identity.state
        if not state or state in "ZX":
            return f"process {self.pid} has ended"
        return "" if state in "TtD" else f"somebody has continued process {self.pid}"

    def _settle(self, seconds: float) -> None:
        """Wait for the process to stop or to end."""
        limit = time.monotonic() + seconds
        while self._identity.state in ("R", "S", "I") and time.monotonic() < limit:
            time.sleep(0.01)

    @property
    def _identity(self) -> processes.Identity:
        return processes.Identity(self.pid, self.start_ticks)


@dataclass(frozen=True, slots=True)
class Kill(Step):
    """Kills a process; nothing brings it back."""

    pid: int
    start_ticks: int

    def doing(self) -> list[str]:
        return [f"kill -KILL {self.pid}"]

    def undoing(self) -> list[str]:
        return []

    def do(self, commands: Commands) -> None:
        processes.Identity(self.pid, self.start_ticks).send(signal.SIGKILL)

    def undo(self, commands: Commands) -> list[str]:
        return []


def _stop(request: Request, _: NoOptions) -> Plan:
    identity = processes.find_process(request.target, request.record_dir)
    processes.refuse_vital(identity)
    if identity.state in ("T", "t"):
        raise StagewatchError(f"process {identity.pid} is stopped already, by somebody else")
    return Plan((Stop(identity.pid, identity.start_ticks),), processes.describe(identity))


def _kill(request: Request, _: NoOptions) -> Plan:
    identity = processes.find_process(request.target, request.record_dir)
    processes.refuse_vital(identity)
    return Plan(
        (Kill(identity.pid, identity.start_ticks),),
        processes.describe(identity),
        ("a killed process is not brought back: its launcher or Slurm may do so",),
    )


STOP = Kind(
    name="process-stop",
    help="stop a process, like a hang, and continue it afterwards (SIGSTOP, SIGCONT)",
    target=processes.TARGET,
    plan=_stop,
    options=NoOptions,
)
KILL = Kind(
    name="process-kill",
    help="kill a process, like the OOM killer (SIGKILL)",
    target=processes.TARGET,
    plan=_kill,
    options=NoOptions,
    lasts=False,
)
