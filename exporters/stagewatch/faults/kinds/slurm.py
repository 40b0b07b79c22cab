"""A Slurm node that is drained, and one whose slurmd is gone."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stagewatch.core.config import option, path
from stagewatch.core.errors import SourceError, StagewatchError
from stagewatch.faults.plan import Kind, NoOptions, Plan, Request, Step
from stagewatch.faults.processes import Gone, Identity, command_line, describe, environment
from stagewatch.faults.tools import Commands, kept, require, shown
from stagewatch.host.procfs import Procfs

_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_TARGET = "the name of one Slurm node"
_REASON = re.compile(r"^\s+Reason=(.*?)(?: \[[^\[\]]*\])?$", re.MULTILINE)
_UNIT = re.compile(r"/([A-Za-z0-9@_.-]+\.service)(?:/|$)", re.MULTILINE)
_END_SECONDS = 10.0
_SETTLE_SECONDS = 2.0
"""A daemon that is alive after this long was never killed."""


def _show(commands: Commands, node: str) -> tuple[str, str]:
    """A node's state and reason.  Raises `SourceError` where slurmctld does not tell."""
    answer = commands.run("scontrol", "show", "node", node, limit=30).stdout
    state = re.search(r"\bState=(\S+)", answer)
    if not state:
        raise SourceError(f"scontrol show node {node} says: {answer.strip()[:200]}")
    reason = _REASON.search(answer)
    return state[1], reason[1] if reason else ""


@dataclass(frozen=True, slots=True)
class Drain(Step):
    """Drains a node, and resumes it only while the reason is still the one given here."""

    survives_reboot: ClassVar[bool] = True

    node: str
    reason: str

    def doing(self) -> list[str]:
        return [shown(self._update("state=drain", f"reason={self.reason}"))]

    def undoing(self) -> list[str]:
        return [f"{shown(self._update('state=resume'))} (if the reason is still that)"]

    def do(self, commands: Commands) -> None:
        commands.run(*self._update("state=drain", f"reason={self.reason}"))

    def undo(self, commands: Commands) -> list[str]:
        state, reason = _show(commands, self.node)
        if "DRAIN" not in state:
            return []
        if reason != self.reason:
            return [f"left as it is: {self.node} is now drained for another reason, {reason!r}"]
        resume = self._update("state=resume")
        commands.run(*resume)
        return [shown(resume)]

    def _update(self, *settings: str) -> tuple[str, ...]:
        return ("scontrol", "update", f"nodename={self.node}", *settings)


def _drain(request: Request, _: NoOptions) -> Plan:
    node = request.target
    if not _NODE.fullmatch(node):
        raise DRAIN.refuse_target(request)
    require("scontrol")
    state, reason = _show(Commands(request.id), node)
    if "DRAIN" in state or "DOWN" in state or "FAIL" in state:
        raise StagewatchError(f"{node} is {state} already: {reason or 'no reason given'}")
    step = Drain(node, f"stagewatch fault {request.id}")
    return Plan((step,), f"node {node}, which is {state}")


DRAIN = Kind(
    name="slurm-drain",
    help="drain a node, and resume it afterwards (scontrol)",
    target=_TARGET,
    plan=_drain,
    options=NoOptions,
)


@dataclass(frozen=True, slots=True)
class KillDaemon(Step):
    """Kills slurmd, and starts it again by systemd or with the same command line."""

    node: str
    pid: int
    start_ticks: int
    unit: str
    """The systemd unit that it belonged to; empty where it had none."""
    argv: tuple[str, ...]
    directory: str
    output: str
    """The file that it wrote to; empty where it had none."""
    environ: tuple[tuple[str, str], ...] = ()

    def doing(self) -> list[str]:
        return [f"kill -KILL {self.pid}"]

    def undoing(self) -> list[str]:
        return [f"{shown(self._restart)} (unless slurmd of {self.node} runs)"]

    def do(self, commands: Commands) -> None:
        self._identity.send(signal.SIGKILL)
        self._wait(_END_SECONDS)

    def undo(self, commands: Commands) -> list[str]:
        if self._wait(_SETTLE_SECONDS):
            return []
        if self._running() is not None:
            return [f"slurmd of {self.node} runs again already"]
        if self.unit:
            commands.run("systemctl", "reset-failed", self.unit, check=False)
            commands.run(*self._restart)
        else:
            commands.daemon(self.argv, dict(self.environ), Path(self.directory), self.output)
        return [shown(self._restart)]

    def over(self) -> str:
        again = self._running()
        return "somebody has started slurmd again" if again and again.pid != self.pid else ""

    @property
    def _restart(self) -> tuple[str, ...]:
        return ("systemctl", "start", self.unit) if self.unit else self.argv

    @property
    def _identity(self) -> Identity:
        return Identity(self.pid, self.start_ticks)

    def _running(self) -> Identity | None:
        configuration = _flag(self.argv, "f") or dict(self.environ).get("SLURM_CONF", "")
        return find_daemon(self.node, configuration)

    def _wait(self, seconds: float) -> bool:
        """Give it time to end; whether it is still alive."""
        limit = time.monotonic() + seconds
        while self._identity.alive and time.monotonic() < limit:
            time.sleep(0.02)
        return self._identity.alive


def find_daemon(node: str, configuration: str) -> Identity | None:
    """The slurmd of a node on this machine, started with the node's name or on the node's host.

    A machine may run nodes of several clusters: `configuration` is the slurm.conf of the one that
    is meant, empty for the default.
    """
    proc = Procfs()
    for pid in proc.pids():
        with contextlib.suppress(Gone):
            daemon = Identity.of(pid)
            argv = command_line(pid)
            if not _is_slurmd(pid, argv):
                continue
            name = _flag(argv, "N") or os.uname().nodename.partition(".")[0]
            its = _flag(argv, "f") or environment(pid).get("SLURM_CONF", "")
            if (name, its) == (node, configuration):
                return daemon
    return None


def _is_slurmd(pid: int, argv: list[str]) -> bool:
    """Whether a process is a slurmd that we may start again with its own command line.

    A command line is what its process says.  So the program counts too, and its user: what
    another user runs must never be run again as root.
    """
    try:
        program = Path(f"/proc/{pid}/exe").readlink().name
    except OSError:  # the process is gone, or not ours to look at
        return False
    if not argv or Path(argv[0]).name != "slurmd" or not program.startswith("slurmd"):
        return False  # Debian's program is slurmd-wlm
    return Procfs().uid(pid) in (0, os.geteuid())


def _flag(argv: tuple[str, ...] | list[str], letter: str) -> str:
    """The value of a flag, given apart or joined to it; empty where it is not given."""
    match = re.search(rf"\0-{letter}\0?([^\0]+)", "\0" + "\0".join(argv[1:]))
    return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class KillOptions:
    """Options of `slurm-node-kill`."""

    pid_file: Path | None = option(
        None, "slurmd's pid file; looks for its process if none", parse=path
    )


def _slurmd(node: str, pid_file: Path | None) -> tuple[Identity, list[str]]:
    """The node's daemon and its command line.  Raises `StagewatchError` where it does not run."""
    if pid_file is not None:
        try:
            daemon: Identity | None = Identity.of(int(pid_file.read_text()))
        except (OSError, ValueError) as error:
            raise StagewatchError(f"--pid-file {pid_file}: {error}") from error
    else:
        daemon = find_daemon(node, os.environ.get("SLURM_CONF", ""))
    argv = command_line(daemon.pid) if daemon else []
    if daemon is None or not _is_slurmd(daemon.pid, argv):
        raise StagewatchError(
            f"no slurmd of {node} runs on this machine with SLURM_CONF="
            f"{os.environ.get('SLURM_CONF') or 'unset'}: inject it on the node itself, as root"
        )
    return daemon, argv


def _kill(request: Request, options: KillOptions) -> Plan:
    node = request.target
    if not _NODE.fullmatch(node):
        raise KILL.refuse_target(request)
    daemon, argv = _slurmd(node, options.pid_file)
    proc = Path(f"/proc/{daemon.pid}")
    try:
        unit = _UNIT.search((proc / "cgroup").read_text())
        directory = str((proc / "cwd").readlink())
        output = (proc / "fd/1").readlink()
        environ = kept(environment(daemon.pid))
    except OSError as error:
        who = f"slurmd, {describe(daemon)}"
        raise StagewatchError(f"{who}: {error.strerror}: run as root") from None
    name = unit[1] if unit and "slurmd" in unit[1] else ""
    if name:
        require("systemctl")
    step = KillDaemon(
        node=node,
        pid=daemon.pid,
        start_ticks=daemon.start_ticks,
        unit=name,
        argv=tuple(argv),
        directory=directory,
        output=str(output) if output.is_file() else "",
        environ=tuple(sorted(environ.items())),
    )
    note = "its jobs go on; the node is DOWN when SlurmdTimeout is over (scontrol show config)"
    return Plan((step,), f"slurmd of {node}, {describe(daemon)}", (note,))


KILL = Kind(
    name="slurm-node-kill",
    help="kill slurmd of a node of this machine, and start it again afterwards",
    target=_TARGET,
    plan=_kill,
    options=KillOptions,
)
