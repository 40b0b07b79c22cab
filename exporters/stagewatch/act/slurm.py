"""Marks and drains nodes with scontrol; it remembers nothing but what Slurm shows of the nodes."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from stagewatch.act.forms import PREFIX, is_about, is_reason, reason
from stagewatch.core.errors import NoData, SourceError
from stagewatch.judgement.hardware import Proposal
from stagewatch.slurm.model import Node
from stagewatch.slurm.notation import node_availability
from stagewatch.slurm.transport.text import SlurmCli, slurm_runner

SECONDS = 30.0
REMEMBERED_SECONDS = 7 * 86_400.0
"""How far back accounting is asked for nodes that were taken out."""
NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
"""The name of one node, not a list."""
_JOB = re.compile(r"\d{1,10}(_\d{1,10})?")
_COMMENT = re.compile(r"(?:^| )\s*Comment=(.*?)(?= [A-Z]\w*=|$)", re.MULTILINE)


class SlurmSite:
    """The nodes of a Slurm.  `prefix`: the directory of its commands, if they are not on PATH."""

    def __init__(self, prefix: Path | None = None) -> None:
        self._scontrol = str(prefix / "scontrol") if prefix else "scontrol"
        self._slurm = SlurmCli(prefix=prefix)
        self._runner = slurm_runner()

    def taken(self, since: float) -> set[str]:
        """The nodes drained with a reason of ours since this time."""
        return {
            node.name
            for node in self._nodes().values()
            if _drained_here(node) and (node.reason_time or 0) > since
        }

    def was_taken_out(self, proposal: Proposal) -> bool:
        """Whether its node is drained for its job, or was, according to accounting."""
        node = self._nodes().get(proposal.node)
        reasons = [node.reason] if node and _drained_here(node) else []
        with contextlib.suppress(SourceError, NoData):
            events = self._slurm.node_events(SECONDS, REMEMBERED_SECONDS).items
            reasons += [event.reason for event in events if event.node == proposal.node]
        return any(is_about(reason, proposal.job_id) for reason in reasons)

    def out(self, node: str) -> str:
        """Why it cannot be drained."""
        nodes = self._nodes()
        if not NODE.fullmatch(node) or node not in nodes:
            return "Slurm knows no such node"
        mine = nodes[node]
        if node_availability(mine.state, mine.flags) is not None:
            return f"it is out already: {mine.reason or 'no reason given'}"
        return ""

    def last(self, node: str) -> str:
        """The partition in which no other node takes jobs."""
        nodes = self._nodes()
        for partition in nodes[node].partitions:
            if not any(
                partition in other.partitions
                and node_availability(other.state, other.flags) is None
                for other in nodes.values()
                if other.name != node
            ):
                return f"it is the last of partition {partition} that takes jobs"
        return ""

    def comment(self, proposal: Proposal, case: str) -> None:
        """Write the proposal as the node's comment, unless it has one of somebody else."""
        self._comment("node", _one_node(proposal.node), reason(proposal, case))

    def comment_job(self, job_id: str, line: str) -> None:
        """Write a line as the comment of a job, unless it has one of its user."""
        if not _JOB.fullmatch(job_id):
            raise SourceError(f"{job_id!r:.40} is no job of Slurm")
        self._comment("job", job_id, line)

    def drain(self, proposal: Proposal, case: str) -> None:
        """Drain its node; running jobs continue."""
        why = reason(proposal, case)
        self._update("node", _one_node(proposal.node), "state=drain", f"reason={why}")

    def undo(self, node: str) -> list[str]:
        """Resume a node that is drained with a reason of ours, and remove our comment."""
        said = []
        mine = self._nodes().get(node)
        if mine is None:
            raise SourceError(f"Slurm knows no node {node!r:.80}")
        if _drained_here(mine):
            self._update("node", node, "state=resume")
            said.append(f"{node} is resumed")
        elif "DRAIN" in mine.flags:
            said.append(f"{node} stays drained for another reason: {mine.reason}")
        if self._comment_of("node", node).startswith(PREFIX.strip()):
            self._update("node", node, "comment=")
            said.append(f"the comment of {node} is removed")
        return said

    def ours(self) -> list[str]:
        """The nodes drained with a reason of ours; a comment does not count."""
        return sorted(node.name for node in self._nodes().values() if _drained_here(node))

    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self._slurm.nodes(SECONDS).items}

    def _comment(self, kind: str, name: str, line: str) -> None:
        there = self._comment_of(kind, name)
        if there and not there.startswith(PREFIX.strip()):
            raise SourceError(f"{kind} {name} has a comment of somebody else, which stays")
        self._update(kind, name, f"comment={line}")

    def _comment_of(self, kind: str, name: str) -> str:
        shown = self._runner.run([self._scontrol, "show", kind, name], SECONDS)
        found = _COMMENT.findall(shown.decode(errors="replace"))
        return str(found[-1]).strip() if found else ""

    def _update(self, kind: str, name: str, *settings: str) -> None:
        which = f"{'nodename' if kind == 'node' else 'jobid'}={name}"
        self._runner.run([self._scontrol, "update", which, *settings], SECONDS)


def _one_node(name: str) -> str:
    if not NODE.fullmatch(name):
        raise SourceError(f"{name!r:.80} is no name of a node of Slurm")
    return name


def _drained_here(node: Node) -> bool:
    return "DRAIN" in node.flags and is_reason(node.reason)
