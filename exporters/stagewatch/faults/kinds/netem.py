"""Packets to one peer that are delayed or lost on their way out, by the kernel's netem.

https://man7.org/linux/man-pages/man8/tc-netem.8.html
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from stagewatch.core.errors import SourceError, StagewatchError
from stagewatch.faults.commands import Commands, shown
from stagewatch.faults.steps import Step

MAJOR = "5357"
"""Of our queueing discipline's handle, by which it is known again."""
_BANDS = 4
"""One more than the kernel's own three, for the peer alone."""
_UNKNOWN = "qdisc kind is unknown"


@dataclass(frozen=True, slots=True)
class Netem(Step):
    """Netem on a device, for the packets to the peer only; the rest goes out as before."""

    in_network_namespace: ClassVar[bool] = True

    device: str
    address: str
    """The peer's, IPv4 or IPv6."""
    port: int
    """The peer's TCP or UDP port; 0 for any."""
    effect: tuple[str, ...]
    """netem's arguments, as `delay 100ms`."""

    def doing(self) -> list[str]:
        return [shown(command) for command in self._doing()]

    def undoing(self) -> list[str]:
        return [shown(self._undoing())]

    def do(self, commands: Commands) -> None:
        require_netem(commands)
        refuse_other(self.device, root(commands, self.device))
        for command in self._doing():
            commands.run(*command)

    def undo(self, commands: Commands) -> list[str]:
        found = root(commands, self.device)
        if found is None:
            return [f"the device {self.device} is gone, and the rules with it"]
        if found.get("handle") != f"{MAJOR}:":
            return []
        commands.run(*self._undoing())
        return self.undoing()

    def _undoing(self) -> tuple[str, ...]:
        return ("tc", "qdisc", "del", "dev", self.device, "root", "handle", f"{MAJOR}:")

    def _doing(self) -> list[tuple[str, ...]]:
        on = ("dev", self.device)
        leaf = ("parent", f"{MAJOR}:{_BANDS}", "handle", "5358:")
        ip, everything = ("ip6", "128") if ":" in self.address else ("ip", "32")
        match: tuple[str, ...] = ("match", ip, "dst", f"{self.address}/{everything}")
        if self.port:
            match = (*match, "match", ip, "dport", str(self.port), "0xffff")
        protocol = "ipv6" if ip == "ip6" else "ip"
        add = ("tc", "qdisc", "add", *on)
        return [
            (*add, "root", "handle", f"{MAJOR}:", "prio", "bands", str(_BANDS)),
            (*add, *leaf, "netem", "limit", "100000", *self.effect),
            (
                *("tc", "filter", "add", *on, "parent", f"{MAJOR}:", "protocol", protocol),
                *("prio", "1", "u32", *match, "flowid", f"{MAJOR}:{_BANDS}"),
            ),
        ]


def require_netem(commands: Commands) -> None:
    """Try it in a network namespace that is gone with the try.  Raises `StagewatchError`."""
    for kind in ("netem delay 1ms", "prio"):
        probe = ("unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", *kind.split())
        done = commands.run(*probe, check=False)
        if not done.returncode:
            continue
        if _UNKNOWN not in done.stderr:
            raise SourceError(f"{shown(probe)} failed: {done.stderr.strip()[-300:]}")
        module = f"sch_{kind.split()[0]}"
        raise StagewatchError(
            f"this kernel cannot do it: it has no {module} (perhaps its modules are in a package "
            "of their own, as linux-modules-extra, or kernel-modules-extra). What works without: "
            "network-loss with --direction in, the default; 30 % and more of it makes TCP wait "
            "for its retransmissions, 200 ms and longer each"
        )


def root(commands: Commands, device: str) -> dict[str, Any] | None:
    """The device's outermost queueing discipline, None without the device."""
    done = commands.run("tc", "-j", "qdisc", "show", "dev", device, check=False)
    if done.returncode:
        if "Cannot find device" in done.stderr:
            return None
        raise SourceError(f"tc qdisc show dev {device} failed: {done.stderr.strip()[-300:]}")
    try:
        found = json.loads(done.stdout or "[]")
        return next((each for each in found if each.get("root")), {})
    except (ValueError, AttributeError) as error:
        raise SourceError(f"tc qdisc show dev {device}: {done.stdout[:200]!r}") from error


def refuse_other(device: str, found: dict[str, Any] | None) -> None:
    """Raise `StagewatchError` where somebody has set one up: it would be lost for good."""
    if found is None:
        raise StagewatchError(f"there is no network device {device}")
    if found.get("handle") == f"{MAJOR}:":
        raise StagewatchError(
            f"{device} has an injected fault already, and can have one only; see stagewatch "
            "fault list"
        )
    if found.get("handle", "0:") != "0:":
        raise StagewatchError(
            f"{device} has a queueing discipline of its own ({found.get('kind')} "
            f"{found.get('handle')}), which would be lost; remove it before, or use network-loss"
        )
