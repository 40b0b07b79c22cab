"""Signs of trouble over a long period, and the incidents that they make up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.report.components import component_of
from stagewatch.report.events import hung_lines
from stagewatch.report.history import History, Labels, Line, column_runs

JOIN_SECONDS = 300.0
"""Signs of one node or job with less time between them belong together."""

SILENT_COLUMNS = 3
"""An agent counts as silent if it does not answer at this many looks in a row."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign of trouble from `start` to `end`; `open` if it lasted until the end of the period.

    `kind` is drain, down or fail (a node in Slurm), silent (an agent), fault (a marker), stall,
    hung (a stalled job's culprit, with its line of code), rank_gone or restart (a job).
    """

    kind: str
    start: float
    end: float
    open: bool
    node: str = ""
    job_id: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """Signs that belong together, in the order of their start."""

    signs: tuple[Sign, ...]

    @property
    def start(self) -> float:
        """When the first sign began."""
        return self.signs[0].start

    @property
    def end(self) -> float:
        """When the last sign or the period ended."""
        return max(sign.end for sign in self.signs)

    @property
    def open(self) -> bool:
        """Whether a sign lasted until the end of the period."""
        return any(sign.open for sign in self.signs)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes in trouble; without any, the nodes with a fault marker."""
        bad = {sign.node for sign in self.signs if sign.node and sign.kind != "fault"}
        marked = {sign.node for sign in self.signs if sign.node}
        return tuple(sorted(bad or marked))

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that the signs name."""
        return tuple(sorted({sign.job_id for sign in self.signs if sign.job_id}))

    @property
    def kinds(self) -> str:
        """The kinds of its signs in words, each with its first text."""
        words: dict[str, str] = {}
        for sign in self.signs:
            words[sign.kind] = words.get(sign.kind) or sign.text
        return "; ".join(
            f"{kind.replace('_', ' ')}: {text}" if text else kind for kind, text in words.items()
        )


def unavailable(history: History, labels: Labels, by: str) -> list[Line]:
    """Nodes while Slurm calls them drained, down or failing, by the rule or by Slurm's agent."""
    rule = history.last("node:slurm_unavailable:info", labels)
    agent = history.last("slurm_node_unavailable_info", labels)
    return history.lines(f"max by ({by}) ({rule} or {agent})")


def silent(history: History, labels: Labels) -> list[Line]:
    """Nodes while their agent does not answer."""
    up = history.over("max", "up", {**labels, "job": "stagewatch"})
    return history.lines(f"max by (node) ({up}) == 0")


def find_signs(history: History, cluster: str) -> list[Sign]:
    """All signs of trouble on a cluster, by start."""
    chosen = {"cluster": cluster}
    signs: list[Sign] = []

    def add(line: Line, kind: str, text: str, least: int = 1) -> None:
        grid = history.grid
        node, job = line.labels.get("node", ""), line.labels.get("job_id", "")
        for first, last in column_runs(line.values):
            if last - first + 1 >= least:
                end = min(grid.time(last + 1), grid.end)
                is_open = last >= grid.count - 2
                signs.append(Sign(kind, grid.time(first), end, is_open, node, job, text))

    for line in unavailable(history, chosen, "node, kind, reason"):
        reason = line.labels.get("reason", "")
        add(line, line.labels.get("kind") or "drain", "" if reason == "none" else reason)
    for line in silent(history, chosen):
        add(line, "silent", "its agent does not answer", SILENT_COLUMNS)
    by = "node, id, fault_type, target_worker"
    for line in history.most("fault_injection_active", chosen, by):
        what = (line.labels.get("fault_type"), line.labels.get("target_worker"))
        add(line, "fault", " on ".join(filter(None, what)))
    for line in history.most("job:rl_stall:active", chosen, "job_id"):
        add(line, "stall", "no rank makes progress")
    for line in hung_lines(history, chosen, "job_id, role, rank, frame"):
        frame = line.labels.get("frame", "")
        add(line, "hung", f"{component_of(line.labels).label} at {frame}")
    gone = {**chosen, "evidence": "process_gone"}
    for line in history.most("job:rl_stall:culprit", gone, "node, job_id"):
        add(line, "rank_gone", "a rank's process ended without closing its record")
    for line in history.most("slurm_job_restarts", chosen, "job_id"):
        job = line.labels.get("job_id", "")
        for at, value in line.rises():
            when = history.grid.time(at)
            signs.append(Sign("restart", when, when, False, "", job, f"restart {value:.0f}"))
    return sorted(signs, key=lambda sign: (sign.start, sign.kind, sign.node, sign.job_id))


def incidents_of(signs: Sequence[Sign]) -> list[Incident]:
    """The signs grouped into incidents; a fault marker belongs to any signs near it in time."""
    groups: list[list[Sign]] = []
    for sign in signs:
        near = [group for group in groups if any(_touch(sign, other) for other in group)]
        merged = [each for group in near for each in group] + [sign]
        groups = [group for group in groups if group not in near] + [merged]
    incidents = [
        Incident(tuple(sorted(group, key=lambda sign: (sign.start, sign.kind)))) for group in groups
    ]
    return sorted(incidents, key=lambda incident: incident.start)


def _touch(one: Sign, other: Sign) -> bool:
    apart = max(one.start, other.start) - min(one.end, other.end)
    if apart > JOIN_SECONDS:
        return False
    same_node = bool(one.node) and one.node == other.node
    same_job = bool(one.job_id) and one.job_id == other.job_id
    return same_node or same_job or "fault" in (one.kind, other.kind)
