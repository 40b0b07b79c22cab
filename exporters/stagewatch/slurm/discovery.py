"""Service discovery for Prometheus: it lists every node of the cluster.

The format is that of HTTP SD: https://prometheus.io/docs/prometheus/latest/http_sd/

Only `cluster` and `node` are labels.  What changes during a node's life (partitions, state, GPU
type) comes as `__meta_slurm_...`, for relabelling: as a label it would start new series at each
change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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


Place = tuple[str, dict[str, str]]
"""A node's address, and its labels."""


def place(cluster: str, node: Node) -> Place:
    """The labels of a node in service discovery, for any exporter."""
    labels = {
        **({"cluster": cluster} if cluster else {}),
        "node": node.name,
        "__meta_slurm_partitions": _listed(node.partitions),
        "__meta_slurm_state": node.state,
        "__meta_slurm_flags": _listed(sorted(node.flags)),
        "__meta_slurm_gpu_types": _listed(gpus.type or "untyped" for gpus in node.gpus),
    }
    return node.address, labels


def body(places: Iterable[Place], exporters: Iterable[Exporter]) -> bytes:
    """The target groups of some exporters, in Prometheus' format."""
    exporters = tuple(exporters)
    groups = [
        {
            "targets": [_address(address, exporter.port)],
            "labels": {**labels, "__meta_slurm_exporter": exporter.name},
        }
        for address, labels in places
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
        self.places: list[Place] | None = None
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

    def update(self, nodes: Iterable[Node]) -> None:
        """Take a new list, without nodes in the state FUTURE; it is saved where it has changed."""
        places = [place(self.cluster, node) for node in nodes if node.state != "FUTURE"]
        if self.places != places:
            self._render(places)
            if self._file is not None:
                self._file.save({self.cluster: places})

    def _route(self, name: str) -> Route:
        def answer() -> tuple[str, bytes]:
            content = self._bodies.get(name)
            if content is None:
                # An empty list would make Prometheus forget every target; a failure does not.
                raise NoData("no list of nodes yet: the controller has not answered")
            return JSON, content

        return answer

    def _render(self, places: list[Place]) -> None:
        bodies = {"": body(places, self._exporters)}
        for exporter in self._exporters:
            bodies[exporter.name] = body(places, [exporter])
        self._bodies = bodies
        self.places = places

    def _load(self, saved: Any) -> None:
        if (places := saved.get(self.cluster)) is not None:
            self._render([read_place(*place) for place in places])


def read_place(address: Any, labels: Any) -> Place:
    """A saved place.  Raises one of `core.state_file.BROKEN`."""
    return text(address), {text(name): text(value) for name, value in labels.items()}
