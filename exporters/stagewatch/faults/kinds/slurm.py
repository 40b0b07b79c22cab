"""A node that Slurm drains."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stagewatch.errors import ConfigError, SourceError, StagewatchError
from stagewatch.faults.kinds.process import describe, send
from stagewatch.faults.plan import Kind, Plan, Request, Step
from stagewatch.faults.processes import Gone, Identity, command_line
from stagewatch.faults.tools import Commands, kept, require, shown
from stagewatch.sources.procfs import Procfs

_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
TARGET = "the name of one Slurm node"
_REASON = re.compile(r"^\s+Reason=(.*?)(?: \[[^\[\]]*\])?$", re.MULTILINE)


def node_of(request: Request) -> str:
    """The node that is the target.  Raises `ConfigError` for what names not just one."""
    if not _NODE.fullmatch(request.target):
        raise ConfigError(f"--target {request.target!r}: must be {TARGET}")
    return request.target


def _show(commands: Commands, node: str) -> tuple[str, str]:
    """A node's state and reason.  Raises `SourceError` where slurmctld does not tell."""
    shown = commands.run("scontrol", "show", "node", node, limit=30).stdout
    state = re.search(r"\bState=(\S+)", shown)
    if not state:
        raise SourceError(f"scontrol show node {node} says: {shown.strip()[:200]}")
    reason = _REASON.search(shown)
    return state[1], reason[1] if reason else ""


@dataclass(frozen=True, slots=True)
class Drain(Step):
    """A drained node; resumed only while the reason is the one that was given here."""

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


def _drain(request: Request) -> Plan:
    node = node_of(request)
    require("scontrol")
    state, reason = _show(Commands(request.id), node)
    if "DRAIN" in state or "DOWN" in state or "FAIL" in state:
        raise StagewatchError(f"{node} is {state} already: {reason or 'no reason given'}")
    step = Drain(node, f"stagewatch fault {request.id}")
    return Plan((step,), f"node {node}, which is {state}")


DRAIN = Kind(
    name="slurm-drain",
    help="drain a node, and resume it after (scontrol)",
    target=TARGET,
    plan=_drain,
)


_UNIT = re.compile(r"/([A-Za-z0-9@_.-]+\.service)(?:/|$)", re.MULTILINE)
_END_SECONDS = 10.0
_SETTLE_SECONDS = 2.0
"""After this long, a daemon that still lives was never killed."""


@dataclass(frozen=True, slots=True)
class KillDaemon(Step):
    """slurmd killed, and started again as it was: by systemd, or with the same command line."""

    node: str
    pid: int
    start_ticks: int
    unit: str
    """The systemd unit that it belonged to; empty: it was started without."""
    argv: tuple[str, ...]
    directory: str
    output: str
    """The file that it wrote to; empty: none."""
    environ: tuple[tuple[str, str], ...] = ()

    def doing(self) -> list[str]:
        return [f"kill -KILL {self.pid}"]

    def undoing(self) -> list[str]:
        return [f"{shown(self._restart)} (unless slurmd of {self.node} runs)"]

    def do(self, commands: Commands) -> None:
        send(self._identity, signal.SIGKILL)
        self._wait(_END_SECONDS)

    def undo(self, commands: Commands) -> list[str]:
        if self._wait(_SETTLE_SECONDS):
            return []
        if self._found() is not None:
            return [f"slurmd of {self.node} runs again already"]
        if self.unit:
            commands.run("systemctl", "reset-failed", self.unit, check=False)
            commands.run(*self._restart)
        else:
            self._spawn(commands)
        return [shown(self._restart)]

    def over(self) -> str:
        again = self._found()
        return "somebody has started slurmd again" if again and again.pid != self.pid else ""

    @property
    def _restart(self) -> tuple[str, ...]:
        return ("systemctl", "start", self.unit) if self.unit else self.argv

    @property
    def _identity(self) -> Identity:
        return Identity(self.pid, self.start_ticks)

    def _found(self) -> Identity | None:
        configuration = _flag(self.argv, "f") or dict(self.environ).get("SLURM_CONF", "")
        return find_daemon(self.node, configuration)

    def _wait(self, seconds: float) -> bool:
        """Give it time to end; whether it lives still."""
        limit = time.monotonic() + seconds
        while self._identity.alive and time.monotonic() < limit:
            time.sleep(0.02)
        return self._identity.alive

    def _spawn(self, commands: Commands) -> None:
        """As a daemon: it is to outlive this process."""
        try:
            commands.daemon(self.argv, dict(self.environ), Path(self.directory), self.output)
        except OSError as error:
            raise SourceError(f"cannot start {shown(self.argv)}: {error}") from error


def find_daemon(node: str, configuration: str) -> Identity | None:
    """slurmd of that node on this machine: started with its name, or without one on its host.

    A machine may run nodes of several clusters: `configuration` is the slurm.conf of the one that
    is meant, empty for the usual one.
    """
    for pid in Procfs().pids():
        argv = command_line(pid)
        if not argv or Path(argv[0]).name != "slurmd":
            continue
        given = _flag(argv, "N") or os.uname().nodename.partition(".")[0]
        with contextlib.suppress(Gone, OSError):
            found = Identity.of(pid)
            its = _flag(argv, "f") or _environ(Path(f"/proc/{pid}")).get("SLURM_CONF", "")
            if (given, its) == (node, configuration):
                return found
    return None


def _flag(argv: tuple[str, ...] | list[str], letter: str) -> str:
    """The value of a flag, given apart or joined to it; empty where it is not given."""
    match = re.search(rf"\0-{letter}\0?([^\0]+)", "\0" + "\0".join(argv[1:]))
    return match[1] if match else ""


def _environ(proc: Path) -> dict[str, str]:
    raw = (proc / "environ").read_bytes().decode(errors="surrogateescape")
    return dict(each.split("=", 1) for each in raw.split("\0") if "=" in each)


def _kill_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pid-file",
        type=Path,
        metavar="FILE",
        help="slurmd's pid file [default: look for its process]",
    )


def _node_kill(request: Request) -> Plan:
    node = node_of(request)
    file: Path | None = request.options.pid_file
    if file is not None:
        try:
            found: Identity | None = Identity.of(int(file.read_text()))
        except (OSError, ValueError) as error:
            raise StagewatchError(f"--pid-file {file}: {error}") from error
    else:
        found = find_daemon(node, os.environ.get("SLURM_CONF", ""))
    argv = command_line(found.pid) if found else []
    if found is None or not argv or Path(argv[0]).name != "slurmd":
        raise StagewatchError(
            f"no slurmd of {node} runs on this machine with SLURM_CONF="
            f"{os.environ.get('SLURM_CONF') or 'unset'}: inject it on the node itself"
        )
    proc = Path(f"/proc/{found.pid}")
    try:
        unit = _UNIT.search((proc / "cgroup").read_text())
        directory = str((proc / "cwd").readlink())
        output = (proc / "fd/1").readlink()
        environ = kept(_environ(proc))
    except OSError as error:
        raise StagewatchError(f"slurmd, {describe(found)}: {error.strerror}: run as root") from None
    name = unit[1] if unit and "slurmd" in unit[1] else ""
    if name:
        require("systemctl")
    step = KillDaemon(
        node=node,
        pid=found.pid,
        start_ticks=found.start_ticks,
        unit=name,
        argv=tuple(argv),
        directory=directory,
        output=str(output) if output.is_file() else "",
        environ=tuple(sorted(environ.items())),
    )
    note = "its jobs go on; the node is DOWN when SlurmdTimeout is over (scontrol show config)"
    return Plan((step,), f"slurmd of {node}, {describe(found)}", (note,))


KILL = Kind(
    name="slurm-node-kill",
    help="kill slurmd of a node of this machine, and start it again after",
    target=TARGET,
    plan=_node_kill,
    add_options=_kill_options,
)
