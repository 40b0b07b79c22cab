"""slurm.conf and gres.conf of a cluster whose nodes all run on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stagewatch.demo.stack import free_ports
from stagewatch_lab.slurm.services import Accounting, Munge

SETTINGS: Mapping[str, str] = {
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "CredType": "cred/munge",
    "AuthType": "auth/munge",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherFrequency": "30",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "SlurmdParameters": "config_overrides",
    "GresTypes": "gpu",
    "MpiDefault": "none",
    "ReturnToService": "2",
    "SlurmdTimeout": "5",
    "SlurmctldTimeout": "10",
    "KillWait": "2",
    "MessageTimeout": "10",
    "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=100000,bf_interval=1",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "SlurmctldDebug": "info",
    "SlurmdDebug": "info",
}


@dataclass(frozen=True)
class NodeSpec:
    """Nodes that are alike; `gpus` maps a type to how many each has."""

    names: tuple[str, ...]
    gpus: tuple[tuple[str, int], ...] = ()
    cpus: int = 8
    memory: int = 4000
    real: bool = True
    """Whether a slurmd is started; otherwise the node exists for commands only."""


@dataclass(frozen=True)
class ClusterSpec:
    """The parts of a cluster; `partitions` are slurm.conf lines after `PartitionName=`."""

    nodes: tuple[NodeSpec, ...]
    partitions: tuple[str, ...]
    name: str = "lab"
    settings: tuple[tuple[str, str], ...] = ()
    gpu_accounting: bool = True
    """Whether gres/gpu is among AccountingStorageTRES (needs accounting)."""

    @property
    def real_nodes(self) -> tuple[str, ...]:
        """The nodes that have a slurmd."""
        return tuple(name for spec in self.nodes if spec.real for name in spec.names)


def write_configuration(
    spec: ClusterSpec,
    directory: Path,
    spool: Path,
    controller_port: int,
    munge: Munge,
    accounting: Accounting | None,
) -> Path:
    """Write slurm.conf and gres.conf, and make the device files; returns slurm.conf's path."""
    host = os.uname().nodename
    settings = {
        "ClusterName": spec.name,
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": str(controller_port),
        "AuthInfo": f"socket={munge.socket},cred_expire=5",
        "StateSaveLocation": str(directory / "state"),
        "SlurmdSpoolDir": str(spool / "%n"),
        "SlurmctldPidFile": str(directory / "slurmctld.pid"),
        "SlurmdPidFile": str(directory / "slurmd-%n.pid"),
        **SETTINGS,
        **(_accounting(spec, munge, accounting) if accounting else {}),
        **dict(spec.settings),
    }
    lines = [f"{key}={value}" for key, value in settings.items()]
    gres = []
    ports = iter(free_ports(len(spec.real_nodes)))
    devices = _devices(directory, max(sum(n for _, n in each.gpus) for each in spec.nodes))
    for nodes in spec.nodes:
        if not nodes.real:
            lines.append(_ghosts_line(nodes, host))
        for name in nodes.names if nodes.real else ():
            lines.append(_node_line(nodes, name, host, next(ports)))
        first = 0
        for kind, number in nodes.gpus:
            files = f"{devices}[{first}-{first + number - 1}]"
            gres.append(f"NodeName={','.join(nodes.names)} Name=gpu Type={kind} File={files}")
            first += number
    lines += [f"PartitionName={line}" for line in spec.partitions]
    config = directory / "slurm.conf"
    config.write_text("\n".join(lines) + "\n")
    (directory / "gres.conf").write_text("\n".join(gres) + "\n")
    return config


def _accounting(spec: ClusterSpec, munge: Munge, accounting: Accounting) -> dict[str, str]:
    settings = {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(accounting.port),
        "AccountingStoragePass": str(munge.socket),
    }
    if spec.gpu_accounting:
        types = sorted({kind for nodes in spec.nodes for kind, _ in nodes.gpus})
        tres = ["gres/gpu", *(f"gres/gpu:{kind}" for kind in types)]
        settings["AccountingStorageTRES"] = ",".join(tres)
    return settings


def _devices(directory: Path, count: int) -> Path:
    """Character devices that no driver backs, since slurmd insists on device files."""
    prefix = directory / "dev/nvidia"
    for number in range(count):
        os.mknod(f"{prefix}{number}", 0o600 | 0o020000, os.makedev(195, number))
    return prefix


def _ghosts_line(spec: NodeSpec, host: str) -> str:
    """Nodes without a slurmd, in one line; slurmctld needs a port for each even so.

    No connection reaches their address: on an address of this machine one of the ports may be
    slurmctld's own, which would ask itself, and sdiag would count that.
    """
    gres = ",".join(f"gpu:{kind}:{number}" for kind, number in spec.gpus)
    return (
        f"NodeName={','.join(spec.names)} NodeHostname={host} NodeAddr=255.255.255.255 "
        f"Port=[20000-{19999 + len(spec.names)}] CPUs={spec.cpus} RealMemory={spec.memory}"
        f"{f' Gres={gres}' if gres else ''}"
    )


def _node_line(spec: NodeSpec, name: str, host: str, port: int) -> str:
    gres = ",".join(f"gpu:{kind}:{number}" for kind, number in spec.gpus)
    return (
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={spec.cpus} "
        f"RealMemory={spec.memory}{f' Gres={gres}' if gres else ''}"
    )
