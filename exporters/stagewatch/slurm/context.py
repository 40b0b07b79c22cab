"""What the collectors of the Slurm agent share: its options, the cluster and the list of nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.config import address, listing, option, path
from stagewatch.core.context import AgentOptions
from stagewatch.slurm.cluster import Cluster, Timing
from stagewatch.slurm.discovery import Discovery, Exporter
from stagewatch.slurm.transport.text import SlurmCli


def exporter(value: str) -> Exporter:
    """NAME:PORT, such as node_exporter:9100"""
    match = re.fullmatch(r"([A-Za-z_][\w-]*):(\d{1,5})", value)
    if not match or not 0 < int(match[2]) < 65536:
        raise ValueError
    return Exporter(match[1], int(match[2]))


DISCOVERY = "service discovery"
"""Heading in the agent's help."""


@dataclass(frozen=True, slots=True)
class SlurmOptions(Timing, AgentOptions):
    """Options of `stagewatch slurm`; collectors add their own."""

    listen: tuple[str, int] = option(
        ("127.0.0.1", 9948),
        "address to serve /metrics, /sd and the status page on; :9948 for every interface",
        parse=address,
    )
    bin_dir: Path | None = option(
        None, "directory of Slurm's commands, where they are not on PATH", parse=path
    )
    state_dir: Path = option(
        Path("/var/lib/stagewatch"),
        "directory of the file that keeps the event counters over restarts",
        env="STAGEWATCH_STATE_DIR",
    )
    cluster_name: str = option(
        "",
        "value of the label `cluster` in service discovery; empty: ClusterName of slurm.conf",
        group=DISCOVERY,
    )
    sd_exporters: tuple[Exporter, ...] = option(
        (Exporter("stagewatch", 9947),),
        "exporters on every node, which /sd and /sd/NAME list",
        parse=listing(exporter),
        group=DISCOVERY,
    )

    def title(self) -> str:
        """The cluster's name on the status page."""
        name = self.cluster()
        return f"Cluster {name}" if name else os.uname().nodename

    def cluster(self) -> str:
        """The cluster's name; empty if unknown."""
        return self.cluster_name or cluster_name(os.environ)


@dataclass(frozen=True, slots=True)
class SlurmContext:
    """What the collectors of one agent share."""

    options: SlurmOptions
    cluster: Cluster
    discovery: Discovery

    def close(self) -> None:
        """Cancel all running requests and save the counters."""
        self.cluster.close()


def slurm_context(options: SlurmOptions) -> SlurmContext:
    """Build the context from the agent's options."""
    cluster = Cluster(
        SlurmCli(prefix=options.bin_dir), options, state_file=options.state_dir / "slurm.json"
    )
    discovery = Discovery(options.sd_exporters, cluster=options.cluster(), memory=options.state_dir)
    return SlurmContext(options, cluster, discovery)


_PLACES = (
    Path("/etc/slurm/slurm.conf"),
    Path("/run/slurm/conf/slurm.conf"),
    Path("/etc/slurm-llnl/slurm.conf"),
    Path("/usr/local/etc/slurm.conf"),
)
_CLUSTER_NAME = re.compile(r"^\s*ClusterName\s*=\s*([\w.-]+)", re.IGNORECASE | re.MULTILINE)


def cluster_name(environ: Mapping[str, str]) -> str:
    """`ClusterName` in the slurm.conf that Slurm's commands use; empty if there is no such file."""
    given = environ.get("SLURM_CONF")
    for place in (Path(given),) if given else _PLACES:
        try:
            match = _CLUSTER_NAME.search(place.read_text(errors="replace"))
        except OSError:
            continue
        if match:
            return match[1].lower()
    return ""
