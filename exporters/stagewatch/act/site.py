"""Takes a node out of Slurm or Kubernetes, if all limits allow it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stagewatch.act.slurm import SlurmSite
from stagewatch.core.config import http_url, one_of, option, path
from stagewatch.core.errors import StagewatchError
from stagewatch.judgement.hardware import SURE, Proposal

HOUR_SECONDS = 3600.0


class Refused(StagewatchError):
    """A limit forbids taking a node out."""


class IsOut(Refused):
    """The node is out of service, or not known."""


class Site(Protocol):
    """A place where nodes are marked and taken out.  Every call raises `SourceError` on failure."""

    def taken(self, since: float) -> set[str]:
        """The nodes that were taken out by us since a Unix time, and still are."""

    def was_taken_out(self, proposal: Proposal) -> bool:
        """Whether its node has been taken out for its job by anybody, even if it is back now."""

    def out(self, node: str) -> str:
        """Why a node cannot be taken out (unknown, or out already); empty if it can."""

    def last(self, node: str) -> str:
        """The partition whose last working node this is, whether it is out or not; else empty."""

    def comment(self, proposal: Proposal, case: str) -> None:
        """Write the proposal at its node."""

    def drain(self, proposal: Proposal, case: str) -> None:
        """Take its node out."""

    def undo(self, node: str) -> list[str]:
        """Undo only what we did to a node, and return what that was."""

    def ours(self) -> list[str]:
        """All nodes that we have marked or taken out."""


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """Options: where and how often nodes are taken out."""

    on: str = option(
        "slurm",
        "where nodes are marked: slurm (by scontrol, as root or an administrator of Slurm) or "
        "kubernetes (an event; for a drain also a condition of the node)",
        parse=one_of("slurm", "kubernetes"),
    )
    cluster: str = option(
        "", "mark only nodes with this value of the label cluster; any value if empty"
    )
    nodes_per_hour: int = option(2, "the most nodes that are taken out within an hour")
    bin_dir: Path | None = option(
        None, "directory of Slurm's commands, where they are not on PATH", parse=path
    )
    kubernetes_url: str = option(
        "https://kubernetes.default.svc",
        "server of the Kubernetes API; outside of a pod, the address of kubectl proxy",
        parse=http_url,
    )


def site(options: SiteOptions) -> Site:
    """The site that the options name."""
    if options.on == "slurm":
        return SlurmSite(options.bin_dir)
    from stagewatch.act.kubernetes import KubernetesSite  # with requests

    return KubernetesSite(options.kubernetes_url)


def act(
    place: Site,
    how: str,
    proposal: Proposal,
    case: str,
    options: SiteOptions,
    now: float,
    *,
    also: Collection[str] = (),
) -> None:
    """Comment on the node of a proposal, or drain it.

    Raises `Refused` with the limit that forbids it, and `SourceError` if the site fails.

    `also`: more nodes that were taken out within the hour, even if they are back.
    """
    node = proposal.node
    if proposal.confidence != SURE:
        raise Refused(f"{node}: the verdict is only {proposal.confidence}")
    if now >= proposal.until or now < proposal.since:
        raise Refused(f"{node}: the verdict is too old, or its time is in the future")
    if options.cluster not in ("", proposal.cluster):
        raise Refused(f"{node}: it is of cluster {proposal.cluster!r}, not {options.cluster!r}")
    if how == "comment":
        place.comment(proposal, case)
        return

    def limit() -> str:
        taken = (place.taken(now - HOUR_SECONDS) | set(also)) - {node}
        if len(taken) < options.nodes_per_hour:
            return place.last(node)
        return f"the limit of nodes per hour is reached ({len(taken)} taken out)"

    if why := place.out(node):
        raise IsOut(f"{node}: {why}")
    if why := limit():
        raise Refused(f"{node}: {why}")
    place.drain(proposal, case)
    if why := limit():  # another judge has taken one out at the same moment
        place.undo(node)
        raise Refused(f"{node}: {why}")
