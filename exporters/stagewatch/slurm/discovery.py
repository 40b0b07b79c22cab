"""Service discovery for Prometheus: it lists every node of the cluster.

The format is that of HTTP SD: https://prometheus.io/docs/prometheus/latest/http_sd/

Only `cluster` and `node` are labels.  What changes during a node's life (partitions, state, GPU
type) comes as `__meta_slurm_...`, for relabelling: as a label it would start new series at each
change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.context import Route
from stagewatch.core.errors import NoData
from stagewatch.core.state_file import StateFile, text
from stagewatch.slurm.model import Node

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Exporter:
    """An exporter that listens on a port of every node."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Target:
    """The part of a node that discovery needs and saves."""

    node: str
    address: str
    partitions: tuple[str, ...]
    state: str
    flags: tuple[str, ...]
    gpu_types: tuple[str, ...]


def targets_of(nodes: Iterable[Node]) -> tuple[Target, ...]:
    """The nodes to scrape, without nodes in the state FUTURE."""
    return tuple(
        Target(
            node=node.name,
            address=node.address,
            partitions=node.partitions,
            state=node.state,
            flags=tuple(sorted(node.flags)),
            gpu_types=tuple(gpus.type or "untyped" for gpus in node.gpus),
        )
        for node in nodes
        if node.state != "FUTURE"
    )


def body(cluster: str, targets: Iterable[Target], exporters: Iterable[Exporter]) -> bytes:
    """The target groups of some exporters, in Prometheus' format."""
    exporters = tuple(exporters)
    groups = [
        {
            "targets": [_address(target.address, exporter.port)],
            "labels": {
                **({"cluster": cluster} if cluster else {}),
                "node": target.node,
                "__meta_slurm_exporter": exporter.name,
                "__meta_slurm_partitions": _listed(target.partitions),
                "__meta_slurm_state": target.state,
                "__meta_slurm_flags": _listed(target.flags),
                "__meta_slurm_gpu_types": _listed(target.gpu_types),
            },
        }
        for target in targets
        for exporter in exporters
    ]
    return json.dumps(groups, separators=(",", ":")).encode() + b"\n"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listed(values: Iterable[str]) -> str:
    """Returns `,a,b,`, so that `.*,a,.*` matches at any position."""
    joined = ",".join(values)
    return f",{joined}," if joined else ""


class Discovery:
    """The last good list of the cluster's nodes, ready to be served.

    `memory` is the directory of the file that keeps the list over a restart: an agent that starts
    while the controller is down must not tell Prometheus that there are no nodes.
    """

    def __init__(
        self,
        exporters: Iterable[Exporter],
        *,
        cluster: str = "",
        memory: Path | None = None,
    ) -> None:
        self.cluster = cluster
        self.targets: tuple[Target, ...] | None = None
        """The nodes to scrape; `None` until there is a list."""
        self._exporters = tuple(exporters)
        self._file: StateFile | None = None

        self._bodies: dict[str, bytes] = {}
        if memory is not None:
            lost = "the controller is asked again"
            self._file = StateFile(memory / "discovery.json", lost=lost, make_directory=True)
            self._file.load(self._load)

    def routes(self) -> Mapping[str, Route]:
        """`/sd` for all exporters, `/sd/NAME` for one of them."""
        paths = {
            "/sd": "",
            **{f"/sd/{exporter.name}": exporter.name for exporter in self._exporters},
        }
        return {path: self._route(name) for path, name in paths.items()}

    def update(self, targets: tuple[Target, ...]) -> None:
        """Take a new list; it is saved where it has changed."""
        if self.targets != targets:
            self._render(targets)
            self._save()

    def _route(self, name: str) -> Route:
        def answer() -> tuple[str, bytes]:
            content = self._bodies.get(name)
            if content is None:
                # An empty list would make Prometheus forget every target; a failure does not.
                raise NoData("no list of nodes yet: the controller has not answered")
            return JSON, content

        return answer

    def _render(self, targets: tuple[Target, ...]) -> None:
        bodies = {"": body(self.cluster, targets, self._exporters)}
        for exporter in self._exporters:
            bodies[exporter.name] = body(self.cluster, targets, [exporter])
        self._bodies = bodies
        self.targets = targets

    def _save(self) -> None:
        if self._file is not None:
            self._file.save({self.cluster: list(map(astuple, self.targets or ()))})

    def _load(self, saved: Any) -> None:
        if (targets := saved.get(self.cluster)) is not None:
            self._render(tuple(map(_from_json, targets)))


def _from_json(saved: Any) -> Target:
    node, address, partitions, state, flags, gpu_types = saved
    return Target(
        node=text(node),
        address=text(address),
        partitions=_strings(partitions),
        state=text(state),
        flags=_strings(flags),
        gpu_types=_strings(gpu_types),
    )


def _strings(saved: Any) -> tuple[str, ...]:
    if not isinstance(saved, list):
        raise ValueError(f"not a list: {saved!r:.40}")
    return tuple(map(text, saved))
