"""What the collectors of one node share: the options of the agent and the sources behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.core.config import address, option, path
from stagewatch.core.helper import Helper
from stagewatch.gpu.directory import GpuDirectory
from stagewatch.gpu.xids import XidLedger
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.record import DEFAULT_DIRECTORY


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Options of `stagewatch node` as a whole; collectors add their own."""

    listen: tuple[str, int] = option(
        ("127.0.0.1", 9947),
        "address to serve /metrics and the status page on; :9947 for every interface",
        parse=address,
    )
    web_config: Path | None = option(
        None,
        "file with TLS and basic authentication, in the format of Prometheus' exporter-toolkit",
        parse=path,
    )
    node_name: str = option("", "what the status page calls this node; its host name if empty")
    record_dir: Path = option(
        Path(DEFAULT_DIRECTORY), "directory of the ranks' stage records", env="STAGEWATCH_DIR"
    )
    ranks_by_environment: bool = option(
        True,
        "also take processes without a stage record for ranks, by variables such as RANK and "
        "SLURM_PROCID; turn off where several agents share one machine",
    )
    fault_dir: Path = option(
        Path("/run/stagewatch/faults"), "directory of the fault-injection markers"
    )
    proc: Path = option(Path("/proc"), "where the process filesystem is mounted")
    sys: Path = option(Path("/sys"), "where sysfs is mounted")


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What the collectors of one node share."""

    options: NodeOptions
    proc: Procfs
    ranks: RankDirectory
    families: ProcessFamilies
    xids: XidLedger = field(default_factory=XidLedger)
    gpus: GpuDirectory = field(default_factory=GpuDirectory)
    helper: Helper = field(default_factory=Helper)


def node_context(options: NodeOptions) -> NodeContext:
    """The shared parts, out of the agent's options."""
    proc = Procfs(options.proc)
    records = RecordDirectory(options.record_dir, proc)
    ranks = RankDirectory(records, proc, by_environment=options.ranks_by_environment)
    return NodeContext(options, proc, ranks, ProcessFamilies(ranks.ranks, proc))
