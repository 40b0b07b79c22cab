"""A node that Slurm drains."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from stagewatch.core.errors import ConfigError, SourceError, StagewatchError
from stagewatch.faults.commands import Commands, require, shown
from stagewatch.faults.kinds.base import Kind, Plan, Request
from stagewatch.faults.steps import Step

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
