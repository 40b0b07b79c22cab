"""A Slurm node that is drained."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from stagewatch.core.collector import NoOptions
from stagewatch.core.errors import SourceError, StagewatchError
from stagewatch.faults.plan import Kind, Plan, Request, Step
from stagewatch.faults.tools import Commands, require, shown

_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_REASON = re.compile(r"^\s+Reason=(.*?)(?: \[[^\[\]]*\])?$", re.MULTILINE)


def _show(commands: Commands, node: str) -> tuple[str, str]:
    """A node's state and reason.  Raises `SourceError` if slurmctld does not answer."""
    answer = commands.run("scontrol", "show", "node", node, limit=30).stdout
    state = re.search(r"\bState=(\S+)", answer)
    if not state:
        raise SourceError(f"scontrol show node {node} says: {answer.strip()[:200]}")
    reason = _REASON.search(answer)
    return state[1], reason[1] if reason else ""


@dataclass(frozen=True, slots=True)
class Drain(Step):
    """Drains a node, and resumes it only if the reason is still the one given here."""

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
    target="the name of one Slurm node",
    plan=_drain,
    options=NoOptions,
)
