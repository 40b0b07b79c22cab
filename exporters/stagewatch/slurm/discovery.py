"""Tells Prometheus what to scrape: every node of the cluster, from the last good list.

Bodies are those of HTTP SD and of file_sd, which share one format:
https://prometheus.io/docs/prometheus/latest/http_sd/

Only `cluster` and `node` are labels of their own.  What changes in a node's life (its partitions,
state, GPU type) comes as `__meta_slurm_...` for relabelling: as a label it would end all of the
node's series at each change, and begin others.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.errors import NoData
from stagewatch.slurm.model import Node

log = logging.getLogger(__name__)

JSON = "application/json"
Route = Callable[[], tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Exporter:
    """Something that listens on every node."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Target:
    """A node, as far as discovery needs it; this much is kept on disk."""

    cluster: str
    node: str
    address: str
    partitions: tuple[str, ...]
    state: str
    flags: tuple[str, ...]
    gpu_types: tuple[str, ...]


def targets_of(nodes: Iterable[Node], cluster: str, *, by_name: bool = False) -> list[Target]:
    """The nodes to scrape, in their natural order; nodes that are yet to come are left out."""
    found = [
        Target(
            cluster=cluster,
            node=node.name,
            address=node.name if by_name else node.address,
            partitions=node.partitions,
            state=node.state,
            flags=tuple(sorted(node.flags)),
            gpu_types=tuple(gpus.type or "untyped" for gpus in node.gpus),
        )
        for node in nodes
        if node.state != "FUTURE"
    ]
    return sorted(found, key=lambda target: natural(target.node))


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A sort key by which n9 comes before n10."""
    return tuple((text, int(number or -1)) for text, number in re.findall(r"(\D*)(\d{0,18})", name))


def body(targets: Iterable[Target], exporters: Iterable[Exporter]) -> bytes:
    """The target groups of some exporters, as Prometheus reads them."""
    exporters = tuple(exporters)
    groups = [
        {
            "targets": [_address(target.address, exporter.port)],
            "labels": {
                **({"cluster": target.cluster} if target.cluster else {}),
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
    """`,a,b,` can be matched by `.*,a,.*` whatever comes before and after."""
    joined = ",".join(values)
    return f",{joined}," if joined else ""


class Discovery:
    """The last good list of each cluster, ready to be served, and its files.

    `memory` is the directory of the list that outlives the agent: an agent that starts while the
    controller is down must not tell Prometheus that there are no nodes.
    """

    def __init__(
        self,
        exporters: Iterable[Exporter],
        *,
        clusters: Iterable[str] = ("",),
        memory: Path | None = None,
        directory: Path | None = None,
    ) -> None:
        self.exporters = tuple(exporters)
        self._memory = memory / "discovery.json" if memory else None
        self._directory = directory
        self._by_cluster: dict[str, list[Target]] = {}
        self._bodies: dict[str, bytes] = {}
        self._said = ""
        self._recall(frozenset(clusters))

    def routes(self) -> Mapping[str, Route]:
        """`/sd` for all exporters, `/sd/NAME` for one of them."""
        paths = {"/sd": "", **{f"/sd/{each.name}": each.name for each in self.exporters}}
        return {path: self._route(name) for path, name in paths.items()}

    def update(self, cluster: str, targets: list[Target]) -> None:
        """Take a new list; files are written only where something changed."""
        if self._by_cluster.get(cluster) == targets:
            return
        self._by_cluster[cluster] = targets
        self._render()
        self._write_files()

    def counts(self) -> dict[str, int]:
        """How many nodes there are to scrape, by cluster."""
        return {cluster: len(targets) for cluster, targets in self._by_cluster.items()}

    def _route(self, name: str) -> Route:
        def answer() -> tuple[str, bytes]:
            found = self._bodies.get(name)
            if found is None:
                # An empty list would make Prometheus forget every target; a failure does not.
                raise NoData("no list of nodes yet: the controller has not answered")
            return JSON, found

        return answer

    def _render(self) -> None:
        targets = [
            target for cluster in sorted(self._by_cluster) for target in self._by_cluster[cluster]
        ]
        bodies = {"": body(targets, self.exporters)}
        for exporter in self.exporters:
            bodies[exporter.name] = body(targets, [exporter])
        self._bodies = bodies

    def _write_files(self) -> None:
        try:
            if self._memory is not None:
                kept = {
                    cluster: [_to_json(target) for target in targets]
                    for cluster, targets in self._by_cluster.items()
                }
                _replace(self._memory, json.dumps(kept, separators=(",", ":")).encode())
            if self._directory is not None:
                for exporter in self.exporters:
                    path = self._directory / f"{exporter.name}.json"
                    _replace(path, self._bodies[exporter.name])
        except OSError as error:
            self._say(f"service discovery: {error.filename}: {error.strerror}")
        else:
            self._said = ""

    def _recall(self, clusters: frozenset[str]) -> None:
        if self._memory is None:
            return
        try:
            kept = json.loads(self._memory.read_bytes())
            found = {
                str(cluster): [_from_json(each) for each in targets]
                for cluster, targets in kept.items()
                if cluster in clusters
            }
        except FileNotFoundError:
            return
        except OSError as error:
            self._say(f"service discovery: {self._memory}: {error.strerror}")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._say(f"service discovery: {self._memory} is not usable, and is ignored: {error}")
        else:
            if found:
                self._by_cluster = found
                self._render()

    def _say(self, message: str) -> None:
        if message != self._said:
            log.warning("%s", message)
            self._said = message


def _to_json(target: Target) -> list[object]:
    return [
        target.cluster,
        target.node,
        target.address,
        target.partitions,
        target.state,
        target.flags,
        target.gpu_types,
    ]


def _from_json(saved: list[object]) -> Target:
    cluster, node, address, partitions, state, flags, gpu_types = saved
    return Target(
        cluster=str(cluster),
        node=str(node),
        address=str(address),
        partitions=_strings(partitions),
        state=str(state),
        flags=_strings(flags),
        gpu_types=_strings(gpu_types),
    )


def _strings(saved: object) -> tuple[str, ...]:
    if not isinstance(saved, list):
        raise ValueError(f"not a list: {saved!r:.40}")
    return tuple(map(str, saved))


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole, readable by Prometheus under another user."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.chmod(0o644)
    temporary.replace(path)
