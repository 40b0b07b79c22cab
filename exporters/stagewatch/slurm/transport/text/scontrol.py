"""Nodes, reservations, licences and controllers, from `scontrol -o`.

Each record is one line of `Name=value` pairs.  Slurm prints a node's free text (Reason, Comment,
Extra) after everything structural, and turns line breaks in it into spaces.
https://slurm.schedmd.com/scontrol.html
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from stagewatch.core.errors import NoData, SourceError
from stagewatch.slurm.gres import gpus_of_tres, node_gpus
from stagewatch.slurm.model import (
    Controller,
    License,
    Node,
    NodeGpus,
    Records,
    Reservation,
)
from stagewatch.slurm.states import node_state
from stagewatch.slurm.transport.text.parts import known, number, seconds, split_pairs

NODES = ("--oneliner", "--details", "--all", "show", "nodes")
RESERVATIONS = ("--oneliner", "show", "reservations")
LICENSES = ("--oneliner", "show", "licenses")
PING = ("ping",)

_SIGNED = re.compile(r" ?\[([^\s\[\]@]+)@(\w+)\]")
_PING = re.compile(r"Slurmctld\((\w+)\) at (\S+) is (\w+)")
T = TypeVar("T")


def parse_nodes(output: bytes) -> Records[Node]:
    """The nodes of `scontrol -o -d show nodes`."""
    return _lines(output, "NodeName=", _node, "nodes")


def parse_reservations(output: bytes) -> Records[Reservation]:
    """The reservations, none of which is a good answer too."""
    if b"No reservations in the system" in output:
        return Records(())
    return _lines(output, "ReservationName=", _reservation, "reservations")


def parse_licenses(output: bytes) -> Records[License]:
    """The licences that the controller counts, none of which is a good answer too."""
    if b"No licenses configured" in output:
        return Records(())
    return _lines(output, "LicenseName=", _license, "licenses")


def parse_ping(output: bytes) -> tuple[Controller, ...]:
    """Which controllers answer; UP and DOWN are all that Slurm says."""
    found = tuple(
        Controller(host=match[2], role=match[1], up=match[3] == "UP")
        for match in _PING.finditer(output.decode(errors="replace"))
    )
    if not found:
        raise SourceError(f"scontrol ping printed something unknown: {output[:80]!r}")
    return found


def _lines(output: bytes, start: str, parse: Callable[[str], T], what: str) -> Records[T]:
    """Records that begin with `start`; other lines carry on the one before."""
    text = output.decode(errors="replace")
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith(start):
            lines.append(line)
        elif lines and line.strip():
            lines[-1] += " " + line
    if not lines:
        if not text.strip():
            raise NoData(f"there are no {what}")
        raise SourceError(f"scontrol printed no {what}: {text[:80]!r}")
    found, malformed = [], 0
    for line in lines:
        try:
            found.append(parse(line))
        except (ValueError, KeyError):
            malformed += 1
    if not found:
        raise SourceError(f"scontrol printed {what} of an unknown shape: {lines[0][:80]!r}")
    return Records(tuple(found), malformed)


def _node(line: str) -> Node:
    structure, _, free_text = line.partition(" Reason=")
    pairs = dict(split_pairs(structure))
    base, flags = node_state(pairs["State"])
    reason, user, when = _reason(free_text)
    name = pairs["NodeName"]
    return Node(
        name=sys.intern(name),
        state=sys.intern(base),
        flags=flags,
        partitions=_partitions(pairs.get("Partitions", "")),
        gpus=_gpus(pairs),
        cpus=number(pairs.get("CPUTot", "")),
        cpus_allocated=number(pairs.get("CPUAlloc", "")),
        address=known(pairs.get("NodeAddr", "")) or name,
        reason=reason,
        reason_user=user,
        reason_time=when,
        boot_time=seconds(pairs.get("BootTime", "").strip()),
        slurmd_start_time=seconds(pairs.get("SlurmdStartTime", "").strip()),
    )


def _gpus(pairs: dict[str, str]) -> tuple[NodeGpus, ...]:
    """From Gres and GresUsed, or from AllocTRES where a version does not print GresUsed."""
    used = pairs.get("GresUsed", "").strip()
    found = node_gpus(pairs.get("Gres", "").strip(), used)
    if used or not found:
        return found
    allocated = dict(gpus_of_tres(pairs.get("AllocTRES", "").strip()) or ())
    if len(found) == 1:
        allocated = {found[0].type: sum(allocated.values())}
    return tuple(
        NodeGpus(each.type, each.configured, allocated.get(each.type, 0)) for each in found
    )


@lru_cache(maxsize=1024)
def _partitions(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.strip().split(",") if name and name != "(null)")


def _reason(text: str) -> tuple[str, str, int | None]:
    """Reason, user and time of `text [user@time] more lines`; the text may hold brackets."""
    text = text.partition(" Comment=")[0].partition(" Extra=")[0]
    signatures = list(_SIGNED.finditer(text))
    if not signatures:
        return known(" ".join(text.split())), "", None
    last = signatures[-1]
    said = f"{text[: last.start()]} {text[last.end() :]}"
    return known(" ".join(said.split())), last[1], seconds(last[2])


def _reservation(line: str) -> Reservation:
    pairs = dict(split_pairs(line))
    return Reservation(
        name=pairs["ReservationName"],
        state=known(pairs.get("State", "")) or "UNKNOWN",
        start=seconds(pairs.get("StartTime", "")),
        end=seconds(pairs.get("EndTime", "")),
        nodes=number(pairs.get("NodeCnt", "")),
        node_list=known(pairs.get("Nodes", "")),
        flags=tuple(flag for flag in known(pairs.get("Flags", "")).split(",") if flag),
    )


def _license(line: str) -> License:
    pairs = dict(split_pairs(line))
    return License(
        name=pairs["LicenseName"],
        total=number(pairs["Total"]),
        used=number(pairs.get("Used", "")),
        free=number(pairs["Free"]) if "Free" in pairs else None,
        reserved=number(pairs["Reserved"]) if "Reserved" in pairs else None,
    )
