"""Who has the configured GPUs: a job, or nobody and why.

The queue and the nodes are read at different moments: a job that has just ended may still show on a
node that the next job already has.  The goodput rules must count every GPU once.  So this collector
compares both: a job holds no more GPUs than its nodes have, and the other GPUs of a node are in the
node's state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.exposition import Samples, gauge
from stagewatch.slurm.cluster import Cluster
from stagewatch.slurm.collectors.nodes import model
from stagewatch.slurm.collectors.queue import HOLDING, gpus_held_or_wanted, only_types
from stagewatch.slurm.model import Job, Node
from stagewatch.slurm.notation import expand_or_none, node_availability, total

HELD = gauge(
    "slurm_held_gpus",
    "GPUs that a job holds, by model and by the job's state. Every configured GPU is exactly once "
    "in this metric or in slurm_unheld_gpus; GPUs of jobs beyond the limit have no job_id.",
    ("job_id", "user", "account", "partition", "model", "state"),
)
UNHELD = gauge(
    "slurm_unheld_gpus",
    "GPUs that no job holds: free, reserved (in a node of an active reservation), drained (in a "
    "node that takes no jobs) or down.",
    ("model", "state"),
)
_LATE = {"SUSPENDED": 1, "STOPPED": 1, "COMPLETING": 2}
"""States in which a job gets only what jobs in other states have left."""
_RESERVED = frozenset(("RESERVED", "MAINTENANCE"))

Room = dict[str, int]
"""GPUs of a node that no job has yet, by Slurm's type."""


MAX_JOBS = 1000
"""Most jobs with their own series."""


class HoldingsCollector(Collector):
    """Compares the queue with the nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def collect(self) -> Samples:
        """Read both; without one of them export nothing, as the sum would be wrong."""
        nodes = self._cluster.nodes.refresh().items
        return measure(self._cluster.jobs.refresh().items, nodes)


def measure(jobs: Iterable[Job], nodes: Iterable[Node], max_jobs: int = MAX_JOBS) -> Samples:
    """Count every GPU of the nodes once."""
    nodes = [node for node in nodes if node.state != "FUTURE"]
    rooms: dict[str, Room] = {}
    for node in nodes:
        room = rooms.setdefault(node.name, {})
        for gpus in node.gpus:
            room[gpus.type] = room.get(gpus.type, 0) + gpus.configured
    broken = {node.name for node in nodes if node.state in ("DOWN", "ERROR")}
    types = only_types(nodes)
    holders = [job for job in jobs if job.state in HOLDING and job.gpus and job.node_list]
    holders.sort(key=lambda job: (-total(job.gpus), job.job_id))
    shown = {job.job_id for job in holders[:max_jobs]}
    holders.sort(key=lambda job: _LATE.get(job.state, 0))
    held: Counter[tuple[str, ...]] = Counter()
    for job in holders:
        names = expand_or_none(job.node_list)
        of_job = [rooms[name] for name in names if name in rooms and name not in broken]
        owner = ("",) * 4
        if job.job_id in shown:
            owner = (str(job.job_id), job.user, job.account, job.partition)
        for kind, wanted in gpus_held_or_wanted(job, types):
            for taken, number in _take(kind, wanted, of_job).items():
                key = (*owner, _name(taken), job.state)
                held[key] += number
    unheld: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        for kind, left in rooms[node.name].items():
            unheld[_name(kind), _state(node)] += left
        rooms[node.name] = {}  # a node that is listed twice
    out = Samples()
    out.add_all(HELD, held)
    out.add_all(UNHELD, unheld)
    return out


def _take(kind: str, wanted: int, rooms: Sequence[Room]) -> Counter[str]:
    """Take GPUs out of the nodes, evenly at first, and fewer if the nodes have fewer.

    `kind` is their type; if no node has that type, any type will do.
    """
    taken: Counter[str] = Counter()
    typed = any(kind in room for room in rooms)
    for most in (-(-wanted // max(1, len(rooms))), wanted):
        for room in rooms:
            here = 0
            for of_type in (kind,) if typed else tuple(room):
                number = min(wanted, most - here, room.get(of_type, 0))
                if number > 0:
                    room[of_type] -= number
                    taken[of_type] += number
                    here += number
                    wanted -= number
    return taken


def _name(kind: str) -> str:
    """The model; Slurm's own type if that names no model."""
    return model(kind) or kind or "untyped"


def _state(node: Node) -> str:
    kind = node_availability(node.state, node.flags)
    if kind is not None:
        return "down" if kind == "down" else "drained"
    return "reserved" if node.flags & _RESERVED else "free"


SPEC = Declaration(
    name="slurm_holdings",
    help="each configured GPU once: the job that has it, or why none has",
    interval=15,
    options=NoOptions,
)
