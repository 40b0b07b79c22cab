"""Nodes and their GPUs as the controller sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.exposition import MAX_SERIES, Samples, gauge
from stagewatch.gpu.model_names import gpu_model
from stagewatch.slurm.cluster import Source
from stagewatch.slurm.model import Node, Records
from stagewatch.slurm.notation import NodeGpus, node_availability, reason_class

STATE = gauge("slurm_node_state", "1 for the node's base state.", ("node", "state"))
FLAG = gauge("slurm_node_flag", "1 for each flag on top of the base state.", ("node", "flag"))
HIDDEN_FLAGS = gauge(
    "slurm_node_flag_without_series",
    "Nodes with a flag that has no series in slurm_node_flag because too many nodes have it.",
    ("flag",),
)
NODES = gauge(
    "slurm_nodes",
    "Nodes by availability: available, drain, down, or fail; a node counts in all of its "
    "partitions.",
    ("partition", "availability"),
)
PARTITION_NODES = gauge("slurm_partition_nodes", "Nodes by base state.", ("partition", "state"))
CLUSTER_NODES = gauge(
    "slurm_cluster_nodes", "Nodes by base state; every node counts once.", ("state",)
)
UNAVAILABLE = gauge(
    "slurm_node_unavailable_info",
    "1 for a node that takes no jobs: how (drain, down, fail), why, and who set it.",
    ("node", "kind", "reason_class", "reason", "user"),
)
SINCE = gauge(
    "slurm_node_unavailable_since_timestamp_seconds",
    "When the node was taken out of service, as Unix time; absent where Slurm does not say.",
    ("node", "kind"),
)
NODE_GPUS = gauge(
    "slurm_node_gpus",
    "GPUs configured in a node, by type; model is the card that the type names, as in gpu_info, "
    "or empty.",
    ("node", "gpu_type", "model"),
)
GPUS = gauge(
    "slurm_gpus",
    "GPUs by state, which add up to those configured: allocated, free, free_drained (idle in a "
    "node that takes no jobs), down.  A node's GPUs count in all of its partitions.",
    ("partition", "gpu_type", "state"),
)
CLUSTER_GPUS = gauge(
    "slurm_cluster_gpus",
    "GPUs by state as in slurm_gpus; every GPU counts once.",
    ("gpu_type", "state"),
)
GPU_STATES = ("allocated", "free", "free_drained", "down")


class NodesCollector(Collector):
    """Exports the nodes of one snapshot and counts their states and GPUs."""

    def __init__(self, nodes: Source[Records[Node]]) -> None:
        self._nodes = nodes

    def collect(self) -> Samples:
        """Fetch the nodes and count them."""
        return measure(self._nodes.refresh().items)


def gpu_states(node: Node, gpus: NodeGpus) -> tuple[int, int, int, int]:
    """How many GPUs are in each of `GPU_STATES`; the sum is what is configured."""
    allocated = min(gpus.allocated, gpus.configured)
    rest = gpus.configured - allocated
    kind = node_availability(node.state, node.flags)
    if node.state in ("DOWN", "ERROR"):
        return 0, 0, 0, gpus.configured
    if kind == "down":
        return allocated, 0, 0, rest
    if kind is not None:
        return allocated, 0, rest, 0
    return allocated, rest, 0, 0


@lru_cache(maxsize=256)
def model(configured: str) -> str:
    """The model of a configured GPU type; many nodes share few types."""
    return gpu_model(configured)


def measure(nodes: Iterable[Node]) -> Samples:
    """Count nodes and GPUs by state, and say why nodes are out of service."""
    out = Samples()
    availability: Counter[tuple[str, str]] = Counter()
    states: Counter[tuple[str, str]] = Counter()
    cluster: Counter[str] = Counter()
    gpus: Counter[tuple[str, str, str]] = Counter()
    cluster_gpus: Counter[tuple[str, str]] = Counter()
    nodes = tuple(nodes)
    flags = Counter(flag for node in nodes for flag in node.flags)
    shown_flags = frozenset(_rarest(flags))
    out.add_all(HIDDEN_FLAGS, {flag: flags[flag] for flag in flags.keys() - shown_flags})
    for node in nodes:
        out.add(STATE, 1, node.name, node.state)
        for flag in sorted(node.flags & shown_flags):
            out.add(FLAG, 1, node.name, flag)
        if node.state == "FUTURE":
            continue
        cluster[node.state] += 1
        kind = node_availability(node.state, node.flags)
        for partition in node.partitions:
            availability[partition, kind or "available"] += 1
            states[partition, node.state] += 1
        if kind is not None:
            _unavailable(out, node, kind)
        for of_type in node.gpus:
            name = of_type.type or "untyped"
            out.add(NODE_GPUS, of_type.configured, node.name, name, model(of_type.type))
            for state, number in zip(GPU_STATES, gpu_states(node, of_type), strict=True):
                cluster_gpus[name, state] += number
                for partition in node.partitions:
                    gpus[partition, name, state] += number
    out.add_all(NODES, availability)
    out.add_all(PARTITION_NODES, states)
    out.add_all(CLUSTER_NODES, cluster)
    out.add_all(GPUS, gpus)
    out.add_all(CLUSTER_GPUS, cluster_gpus)
    return out


_URGENT = frozenset(("NOT_RESPONDING", "FAIL", "DRAIN"))


def _rarest(flags: Mapping[str, int]) -> Iterator[str]:
    """The rarest flags, as many as the metric has room for: a flag of most nodes says least."""
    room = MAX_SERIES
    for flag, number in sorted(flags.items(), key=lambda flag: (flag[0] not in _URGENT, flag[1])):
        room -= number
        if room >= 0:
            yield flag


def _unavailable(out: Samples, node: Node, kind: str) -> None:
    labels = (reason_class(node.reason), node.reason or "none", node.reason_user)
    out.add(UNAVAILABLE, 1, node.name, kind, *labels)
    out.add(SINCE, node.reason_time, node.name, kind)


SPEC = Declaration(
    name="slurm_nodes",
    help="nodes, why they are out of service, and GPUs by state (scontrol show nodes)",
    interval=30,
    options=NoOptions,
)
