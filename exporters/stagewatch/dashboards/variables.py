"""The variables, always in the same order, so that links carry them from board to board."""

from __future__ import annotations

from collections.abc import Iterable

from stagewatch.dashboards.modern import Variable

ALPHABETICAL, NUMERICAL = 1, 3
ON_TIME_RANGE = 2

_NODE_AGENTS = 'up{job="stagewatch", cluster=~"$cluster", partition=~"(|.*,)($partition)(|,.*)"}'
"""A node in several partitions has them in one label, with commas between."""

_QUERIES = {
    "cluster": 'label_values(up{job=~"stagewatch.*"}, cluster)',
    "partition": 'label_values(slurm_nodes{cluster=~"$cluster"}, partition)',
    "node": f"label_values({_NODE_AGENTS}, node)",
    "gpu": 'label_values(gpu_info{cluster=~"$cluster", node=~"$node"}, gpu)',
    "job_id": 'label_values(rl_rank_info{cluster=~"$cluster"}, job_id)',
}
_DESCRIPTIONS = {
    "cluster": "Clusters that agents are scraped from.",
    "partition": "Slurm partitions; also narrows the list of nodes, if nodes carry the label.",
    "node": "Nodes with an agent.",
    "gpu": "NVML index of the GPU.",
    "job_id": "Jobs that had ranks in this time range.",
}
ORDER = tuple(_QUERIES)
REQUIRES = {"node": ("partition",)}
"""A variable whose query uses others needs them on the board."""


def variables(names: Iterable[str]) -> list[Variable]:
    """The data source, the cluster, and those named, in the house order."""
    wanted = {"cluster", *names}
    for name in tuple(wanted):
        wanted.update(REQUIRES.get(name, ()))
    source = Variable(
        name="datasource",
        label="Data source",
        description="The Prometheus that scrapes the agents.",
        type="datasource",
        query="prometheus",
        refresh=1,
    )
    return [source, *(_query(name) for name in ORDER if name in wanted)]


def _query(name: str) -> Variable:
    several = name != "job_id"
    return Variable(
        name=name,
        label={"job_id": "Job", "gpu": "GPU"}.get(name, name.capitalize()),
        description=_DESCRIPTIONS[name],
        query=_QUERIES[name],
        refresh=ON_TIME_RANGE,
        sort=NUMERICAL if name in ("gpu", "job_id") else ALPHABETICAL,
        multi=several,
        includeAll=several,
        allValue=".*" if several else None,
    )
