"""Signs that something is out of order, over a long period, and the incidents they make up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.report.history import History, Line, quoted
from stagewatch.report.periods import Period

JOIN_SECONDS = 300.0
"""Signs of one node or job belong together when less than this is between them."""

SILENT_COLUMNS = 3
"""An agent counts as silent when so many looks in a row found it so."""

_QUERIES = {
    "drain": "max by (node, kind, reason) (last_over_time(node:slurm_unavailable:info{CL}"
    "[{window}]) or last_over_time(slurm_node_unavailable_info{CL}[{window}]))",
    "silent": 'max by (node) (max_over_time(up{CL, job="stagewatch"}[{window}])) == 0',
    "fault": "max by (node, id, fault_type, target_worker) (last_over_time("
    "fault_injection_active{CL}[{window}]))",
    "stall": "max by (job_id) (last_over_time(job:rl_stall:active{CL}[{window}]))",
    "rank_gone": "max by (node, job_id) (last_over_time(job:rl_stall:culprit{CL, "
    'evidence="process_gone"}[{window}]))',
}
"""Each has samples only while something is wrong; CL stands for the cluster's selector."""

_RESTARTS = "max by (job_id) (last_over_time(slurm_job_restarts{CL}[{window}]))"


@dataclass(frozen=True, slots=True)
class Sign:
    """Something out of order from `start` to `end`; `open` if it was so until the period's end.

    `kind` is drain, down or fail (a node in Slurm), silent (an agent), fault (a marker), stall,
    rank_gone or restart (a job).
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
    """Signs that belong together, by their start."""

    signs: tuple[Sign, ...]

    @property
    def start(self) -> float:
        """When the first sign began."""
        return self.signs[0].start

    @property
    def end(self) -> float:
        """When the last sign ended, or the period did."""
        return max(sign.end for sign in self.signs)

    @property
    def open(self) -> bool:
        """Whether it was not over at the period's end."""
        return any(sign.open for sign in self.signs)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that are out of order, else those where a marker lies."""
        bad = {sign.node for sign in self.signs if sign.node and sign.kind != "fault"}
        marked = {sign.node for sign in self.signs if sign.node}
        return tuple(sorted(bad or marked))

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that the signs name."""
        return tuple(sorted({sign.job_id for sign in self.signs if sign.job_id}))


def find_signs(history: History, cluster: str) -> list[Sign]:
    """Everything out of order on a cluster, by start."""
    chosen = f"cluster={quoted(cluster)}"
    found: list[Sign] = []
    for kind, query in _QUERIES.items():
        for line in history.lines(query.replace("CL", chosen), f"signs: {kind}"):
            found += _signs(history, kind, line)
    for line in history.lines(_RESTARTS.replace("CL", chosen), "signs: restarts"):
        found += _rises(history, line)
    return sorted(found, key=lambda sign: (sign.start, sign.kind, sign.node, sign.job_id))


def incidents_of(signs: Sequence[Sign]) -> list[Incident]:
    """Signs grouped; a fault marker belongs to whatever is near it in time."""
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


def column_runs(values: Sequence[float | None], gap: int = 2) -> list[tuple[int, int]]:
    """First and last columns of runs of known values; up to `gap` unknown ones are no hole."""
    found: list[tuple[int, int]] = []
    for at, value in enumerate(values):
        if value is None:
            continue
        if found and at - found[-1][1] <= gap + 1:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def _signs(history: History, kind: str, line: Line) -> list[Sign]:
    grid = history.grid
    labels = line.labels
    words = {
        "drain": labels.get("reason", ""),
        "silent": "its agent does not answer",
        "fault": " on ".join(filter(None, (labels.get("fault_type"), labels.get("target_worker")))),
        "stall": "no rank makes progress",
        "rank_gone": "a rank's process ended without closing its record",
    }
    return [
        Sign(
            kind=labels.get("kind") or kind if kind == "drain" else kind,
            start=grid.time(first),
            end=min(grid.time(last + 1), grid.end),
            open=last >= grid.count - 2,
            node=labels.get("node", ""),
            job_id=labels.get("job_id", ""),
            text=words[kind],
        )
        for first, last in column_runs(line.values)
        if kind != "silent" or last - first + 1 >= SILENT_COLUMNS
    ]


def _rises(history: History, line: Line) -> list[Sign]:
    found = []
    before: float | None = None
    for at, value in enumerate(line.values):
        if value is not None and before is not None and value > before:
            when = history.grid.time(at)
            job = line.labels.get("job_id", "")
            found.append(Sign("restart", when, when, False, "", job, f"restart {value:.0f}"))
        before = before if value is None else value
    return found


def union(periods: Sequence[Period]) -> list[Period]:
    """The same time without overlaps."""
    found: list[Period] = []
    for each in sorted(periods, key=lambda period: period.start):
        if found and each.start <= found[-1].end:
            found[-1] = Period(found[-1].start, max(found[-1].end, each.end))
        else:
            found.append(each)
    return found
