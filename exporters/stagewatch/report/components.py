"""The components that series belong to: a rank, a node, a GPU, a mount, or Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CONTROLLER = "controller"
"""The role of the process that drives an RL job."""

_WORKER = re.compile(
    r"(?:(?P<role>[a-z][a-z_.-]*?)[ _:-]*)??(?:(?:worker|rank|process)[ _:-]*)?(?P<rank>\d+)"
)


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """One part of the system.  `kind` is rank, node, gpu, mount, probe or slurm."""

    kind: str
    role: str = ""
    name: str = ""
    node: str = ""

    @property
    def label(self) -> str:
        """Its name for a person."""
        if self.kind == "rank":
            return f"{self.role or 'rank'} {self.name}"
        if self.kind == "node":
            return f"node {self.node}"
        if self.kind == "slurm":
            return self.name
        kind = "" if self.kind == "mount" else f"{self.kind} "
        return f"{self.node} {kind}{self.name}".strip()

    @property
    def group(self) -> str:
        """The group it belongs to: a rank's role, else its kind."""
        return self.role or self.kind


def component_of(labels: Mapping[str, str]) -> Component:
    """The smallest part that these labels name."""
    node = labels.get("node", "")
    if labels.get("rank"):
        return Component("rank", labels.get("role", ""), labels["rank"])
    for label in ("mount", "directory"):
        if labels.get(label):
            return Component("mount", "", labels[label], node)
    if labels.get("gpu"):
        return Component("gpu", "", labels["gpu"], node)
    if labels.get("target"):
        return Component("probe", "", labels["target"], node)
    if node:
        return Component("node", node=node)
    return Component("slurm", "", "Slurm")


@dataclass(frozen=True, slots=True)
class Target:
    """The places of a fault, by the names in its marker or in `--origin`."""

    names: tuple[str, ...]

    def matches(self, component: Component) -> bool:
        """Whether the component is one of the places."""
        return any(_same(name.strip(), component) for name in self.names if name.strip())

    def __str__(self) -> str:
        return ", ".join(self.names)


def target_of(text: str) -> Target:
    """`rollout_worker_8`, `rank_3`, `train:5`, `controller`, a node, a mount; several by commas."""
    return Target(tuple(name for name in text.split(",") if name.strip()))


def _same(name: str, component: Component) -> bool:
    if name == component.label:
        return True
    if component.kind != "rank":
        return name == (component.node if component.kind == "node" else component.name)
    if name.lower() == component.role.lower():
        return True
    match = _WORKER.fullmatch(name.lower())
    if not match or match["rank"] != component.name:
        return False
    role = match["role"]
    return role in (None, "", "rank", "worker", "process") or role == component.role.lower()


def in_order(components: Iterable[Component]) -> list[Component]:
    """Components in the order of figures: the controller first, then by kind, role and number."""
    return sorted(components, key=_position)


def _position(component: Component) -> tuple[object, ...]:
    kinds = ("slurm", "rank", "gpu", "node", "mount", "probe")
    number = int(component.name) if component.name.isdigit() else -1
    return (
        kinds.index(component.kind),
        component.role != CONTROLLER,
        component.role,
        component.node,
        number,
        component.name,
    )
