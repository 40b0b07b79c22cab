"""Parsers of single lines of the kernel log: GPU errors, out-of-memory kills, NFS servers.

The functions take text only.  The wording is that of the NVIDIA driver (`NVRM:`), of the kernel's
mm/oom_kill.c and of its NFS client (fs/nfs, net/sunrpc/clnt.c).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stagewatch.gpu.xids import bus_key

_BUS = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?"
_XID = re.compile(rf"NVRM: Xid \({_BUS}[^)]*\): (\d{{1,4}})\b(.*)", re.DOTALL)
# "GPU 0000:3b:00.0: GPU has ..." or, over three lines, "The NVIDIA GPU 0000:3b:00.0 ... has".
_FALLEN = re.compile(rf"NVRM: .*?{_BUS}\b.*fallen off the bus", re.DOTALL)
_IDENTITY = re.compile(rf"NVRM: GPU at {_BUS}: (GPU-[0-9a-f-]{{36}})")

FALLEN_OFF_THE_BUS = 79
_NVLINK5 = range(144, 151)


@dataclass(frozen=True, slots=True)
class XidLine:
    """A GPU error; `bus` is in the form of `bus_key`."""

    bus: str
    xid: int
    nonfatal: bool = False
    """The message says so, as those of the NVLink 5 errors 144 to 150 do."""
    plain: bool = False
    """The message has no number: the driver's other words for a GPU that is gone."""


def parse_xid(text: str) -> XidLine | None:
    """The GPU error that a line reports."""
    if match := _XID.match(text):
        xid = int(match[2])
        nonfatal = xid in _NVLINK5 and "nonfatal" in match[3].lower()
        return XidLine(bus_key(match[1]), xid, nonfatal)
    if match := _FALLEN.match(text):
        return XidLine(bus_key(match[1]), FALLEN_OFF_THE_BUS, plain=True)
    return None


def parse_identity(text: str) -> tuple[str, str] | None:
    """The bus and UUID of a GPU, which the driver prints before its first error."""
    match = _IDENTITY.match(text)
    return (bus_key(match[1]), match[2]) if match else None


_SXID = re.compile(
    rf"nvidia-nvswitch\d+: SXid \({_BUS}\): (\d{{1,5}}), (Fatal|Non-fatal)\b", re.ASCII
)


@dataclass(frozen=True, slots=True)
class SxidLine:
    """An error of an NVSwitch; `bus` is in the form of `bus_key`."""

    bus: str
    sxid: int
    fatal: bool


def parse_sxid(text: str) -> SxidLine | None:
    """The NVSwitch error that a line reports; lines with its details (Severity, Data) do not count.

    Wording: NVSWITCH_REPORT_FATAL and _NONFATAL of the driver's nvswitch error reporting, and
    "SXid Errors" of https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/.
    """
    match = _SXID.match(text)
    return SxidLine(bus_key(match[1]), int(match[2]), match[3] == "Fatal") if match else None


_CONSTRAINT = re.compile(
    r"oom-kill:constraint=CONSTRAINT_(\w+),.*?(?:,task_memcg=([^,]*))?,task=.*?,pid=(\d{1,10}),uid="
)
_KILLED = re.compile(
    r"(Memory cgroup out of memory|Out of memory)[^:]*: Killed process (\d{1,10})\b"
)


@dataclass(frozen=True, slots=True)
class OomCause:
    """Why process `pid` is about to be killed: its cgroup; empty if unknown."""

    pid: int
    cgroup: str


@dataclass(frozen=True, slots=True)
class OomKill:
    """A process that was killed.  `scope` is cgroup (its own limit) or system."""

    pid: int
    scope: str


def parse_oom(text: str) -> OomCause | OomKill | None:
    """An out-of-memory kill, or its cause, which the kernel writes before it (since Linux 5.0)."""
    if match := _CONSTRAINT.match(text):
        return OomCause(int(match[3]), match[2] or "")
    if match := _KILLED.match(text):
        return OomKill(int(match[2]), "cgroup" if match[1].startswith("Memory") else "system")
    return None


_NFS = re.compile(
    r"(?:nfs|lockd): server (\S{1,255}) (OK|not responding, (?:still trying|timed out))"
)


@dataclass(frozen=True, slots=True)
class NfsLine:
    """An NFS server that stopped or began to answer."""

    server: str
    answers: bool


def parse_nfs(text: str) -> NfsLine | None:
    """The NFS server that a line is about."""
    match = _NFS.match(text)
    return NfsLine(match[1], match[2] == "OK") if match else None
