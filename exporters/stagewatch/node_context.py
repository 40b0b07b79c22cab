"""What the collectors of one node share: the options of the agent and the sources behind them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.core.adjtimex import adjtimex
from stagewatch.core.children.helper import Helper
from stagewatch.core.children.start import Child, Start, plainly
from stagewatch.core.config import address, option, path
from stagewatch.core.context import AgentOptions
from stagewatch.core.findings import Findings
from stagewatch.core.privileges.keeper import Keeper, keep
from stagewatch.gpu.directory import GpuDirectory
from stagewatch.gpu.xids import XidLedger
from stagewatch.host.guarded import GuardedFiles, reader
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory, records_of_node
from stagewatch.ranks.environment_scan import EnvironmentScan
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.family_io import FamilyIo
from stagewatch.ranks.held_sockets import RankSockets
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.stacks import py_spy, taker
from stagewatch.ranks.waits.look import READER
from stagewatch.ranks.work import Stillness
from stagewatch.record import DEFAULT_DIRECTORY

COPY_SECONDS = 2.2
"""How long a copy of a live rank's record serves: `stages` copies it every 2.5 seconds, and those
that look once a second ask whether the rank lives."""


@dataclass(frozen=True, slots=True)
class NodeOptions(AgentOptions):
    """Options of `stagewatch node` as a whole; collectors add their own."""

    listen: tuple[str, int] = option(
        ("127.0.0.1", 9947),
        "address to serve /metrics and the status page on; :9947 for every interface",
        parse=address,
    )
    node_name: str = option("", "name of this node on the status page; its host name if empty")
    record_dir: Path = option(
        Path(DEFAULT_DIRECTORY), "directory of the ranks' stage records", env="STAGEWATCH_DIR"
    )
    ranks_by_environment: bool = option(
        True,
        "also treat processes without a stage record as ranks, by variables such as RANK and "
        "SLURM_PROCID; turn off if several agents share one machine",
    )
    fault_dir: Path = option(
        Path("/run/stagewatch/faults"), "directory of the fault-injection markers"
    )
    proc: Path = option(Path("/proc"), "mount point of procfs")
    sys: Path = option(Path("/sys"), "mount point of sysfs")
    keeper: Path | None = option(
        None,
        "socket of `stagewatch keeper`, which looks at processes of other users for this agent; "
        "without it the agent does so with the privileges that it was started with",
        parse=path,
    )

    def title(self) -> str:
        """The name of this node on the status page."""
        return self.node_name or os.uname().nodename

    def records(self) -> Path:
        """The directory of stage records."""
        return self.record_dir


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What the collectors of one node share."""

    options: NodeOptions
    proc: Procfs
    files: GuardedFiles
    records: RecordDirectory
    ranks: RankDirectory
    families: ProcessFamilies
    io: FamilyIo
    sockets: RankSockets
    xids: XidLedger = field(default_factory=XidLedger)
    findings: Findings = field(default_factory=Findings)
    gpus: GpuDirectory = field(default_factory=GpuDirectory)
    stillness: Stillness = field(default_factory=Stillness)
    helper: Helper = field(default_factory=Helper)
    keeper: Keeper | None = None
    """The keeper that has taken over this agent's privileges, if it had any."""

    @property
    def start(self) -> Start:
        """Starts a child that looks at processes of other users: one of those listed below."""
        return plainly if self.keeper is None else self.keeper.start

    @property
    def open_kernel_log(self) -> Callable[[], int] | None:
        """Opens the kernel's log, where the agent itself may not."""
        return None if self.keeper is None else self.keeper.open_kernel_log

    @property
    def read_clock(self) -> Callable[[], tuple[int, ...]]:
        """Reads the kernel's clock, which the agent itself may not where a keeper does."""
        return adjtimex if self.keeper is None else self.keeper.read_clock

    def close(self) -> None:
        """End the helper process with its workers, and close stage records and sockets."""
        self.helper.close()
        self.files.close()
        self.sockets.close()
        self.records.close()
        if self.keeper is not None:
            self.keeper.close()


def privileged_children(proc: Path) -> dict[str, Child]:
    """All children that may be started with the agent's privileges, by a name for its keeper.

    An attacker who takes over the agent can ask these children all of their questions.
    """
    return {"reader": reader(proc), "stacks": taker(py_spy()), "waits": READER}


def node_context(options: NodeOptions) -> NodeContext:
    """The shared parts, from the agent's options; this process gives up its privileges."""
    keeper = keep(privileged_children(options.proc), options.keeper)
    files = GuardedFiles(options.proc, start=plainly if keeper is None else keeper.start)
    proc = Procfs(options.proc, None if keeper is None else files)
    records = records_of_node(options.record_dir, proc)
    scan = EnvironmentScan(proc, files) if options.ranks_by_environment else None
    gpus = GpuDirectory()
    ranks = RankDirectory(records, scan, copy_seconds=COPY_SECONDS, gpu_of=gpus.of_process)
    families = ProcessFamilies(ranks.ranks, proc)
    io = FamilyIo(families, files)
    sockets = RankSockets(families, options.proc, files)
    return NodeContext(
        *(options, proc, files, records, ranks, families, io, sockets), gpus=gpus, keeper=keeper
    )
