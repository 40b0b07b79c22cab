"""Which GPUs of which node a job has, from `scontrol -d -o show jobs`.

Only for nodes that several jobs share: for the others the node's own GresUsed says as much.  A
job's name and comment are printed on the same line and may imitate anything, so what is read here
is a claim, to be held against what the nodes say (`agreed`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from stagewatch.slurm import hostlist as slurm_hostlist
from stagewatch.slurm.gres import node_gpus
from stagewatch.slurm.model import Node, Records

ARGUMENTS = ("--oneliner", "--details", "--all", "show", "jobs")

Claim = tuple[int, str, tuple[int, ...]]
"""Job id, node, indices."""
Placement = Mapping[tuple[int, str], tuple[int, ...]]
"""Indices by job id and node."""

_JOB = re.compile(r"JobId=(\d+)\s")
_ON_NODES = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=(\S+)")


def parse(output: bytes) -> Records[Claim]:
    """Every claim in the output, those that cannot be true among them."""
    claims: list[Claim] = []
    malformed = 0
    for line in output.decode(errors="replace").split("\n"):
        job = _JOB.match(line)
        if not job:
            continue
        for nodes, gres in _ON_NODES.findall(line):
            indices = indices_of(gres)
            try:
                names = slurm_hostlist.expand(nodes)
            except ValueError:
                malformed += 1
                continue
            claims += [(int(job[1]), name, indices) for name in names if indices]
    return Records(tuple(claims), malformed)


def indices_of(gres: str) -> tuple[int, ...]:
    """The GPU indices in `gpu:h200:2(IDX:3-4)`."""
    found = node_gpus(re.sub(r"\([^)]*\)", "", gres), gres)
    return tuple(sorted(index for gpus in found for index in gpus.indices))


def agreed(
    claims: Iterable[Claim], nodes: Iterable[Node], held: Collection[tuple[int, str]]
) -> Placement:
    """The claims of nodes on which everything fits together.

    Of a node's claims only those of jobs that are known to be there (`held`) are looked at; no GPU
    may be claimed twice, and together they must be what the node says is allocated.
    """
    by_node: defaultdict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim[:2] in held:
            by_node[claim[1]].append(claim)
    placement: dict[tuple[int, str], tuple[int, ...]] = {}
    for node in nodes:
        found = by_node.get(node.name, [])
        allocated = sorted(index for gpus in node.gpus for index in gpus.indices)
        claimed = sorted(index for _, _, indices in found for index in indices)
        if claimed == allocated:
            placement.update({(job, name): indices for job, name, indices in found})
    return placement
