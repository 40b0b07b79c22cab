"""Delays and drops packets between this machine and a peer; makes a name fail to resolve."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from stagewatch.core.collector import NoOptions
from stagewatch.core.config import duration, option
from stagewatch.core.errors import ConfigError, SourceError, StagewatchError
from stagewatch.core.privileges.capabilities import held
from stagewatch.faults import plan
from stagewatch.faults.tools import Commands, require, shown

_NET_ADMIN = 12
_MAX_ADDRESSES = 8
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_PEER = "the peer as HOST:PORT, [IPV6]:PORT, or HOST:any for all its ports"
MAJOR = "5357"
"""The number of our queueing discipline's handle, which distinguishes it from others."""
_BANDS = 4
"""One band more than the kernel's own three, for the peer alone."""
_UNKNOWN = "qdisc kind is unknown"
_NO_NETEM = (
    "this kernel cannot do it: it has no sch_netem or no sch_prio (perhaps its modules are in a "
    "package of their own, as linux-modules-extra, or kernel-modules-extra). What works without: "
    "network-loss; 30 % and more of it makes TCP wait for its retransmissions, 200 ms and longer "
    "each"
)


@dataclass(frozen=True, slots=True)
class Chain(plan.CommandStep):
    """An iptables chain that drops packets before they reach a built-in one.

    It is removed by its name, so that nobody else's rules are touched.
    """

    in_network_namespace: ClassVar[bool] = True

    tool: str
    """`iptables` or `ip6tables`."""
    hook: str
    """The built-in chain."""
    name: str
    rules: tuple[tuple[str, ...], ...]
    comment: str

    def to_do(self) -> list[tuple[str, ...]]:
        return [
            self._command("-N", self.name),
            *(self._command("-A", self.name, *rule, target="DROP") for rule in self.rules),
            self._command("-I", self.hook, target=self.name),
        ]

    def to_undo(self) -> list[tuple[str, ...]]:
        return [
            self._command("-D", self.hook, target=self.name),
            self._command("-F", self.name),
            self._command("-X", self.name),
        ]

    def undo(self, commands: Commands) -> list[str]:
        done = []
        for command in self.to_undo():
            while self._needed(commands, command):
                commands.run(*command)
                done.append(shown(command))
                if "-F" in command:
                    break
        return done

    def _command(self, *arguments: str, target: str = "") -> tuple[str, ...]:
        jump = ("-m", "comment", "--comment", self.comment, "-j", target) if target else ()
        return (self.tool, "-w", *arguments, *jump)

    def _needed(self, commands: Commands, command: tuple[str, ...]) -> bool:
        """Whether there is something for the command to undo.

        It lists all rules: if asked for a chain that does not exist, iptables says so in several
        ways and without an exit status of its own.
        """
        rules = commands.run(self.tool, "-w", "-S").stdout.splitlines()
        if "-D" in command:
            end = f" -j {self.name}"
            return any(rule.startswith(f"-A {self.hook} ") and rule.endswith(end) for rule in rules)
        return f"-N {self.name}" in rules


@dataclass(frozen=True, slots=True)
class Netem(plan.CommandStep):
    """Netem on a device for the packets to one peer; other packets go out as before.

    https://man7.org/linux/man-pages/man8/tc-netem.8.html
    """

    in_network_namespace: ClassVar[bool] = True

    device: str
    address: str
    """The peer's address, IPv4 or IPv6."""
    port: int
    """The peer's TCP or UDP port; 0 for any."""
    effect: tuple[str, ...]
    """netem's arguments, as `delay 100ms`."""

    def to_do(self) -> list[tuple[str, ...]]:
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

    def to_undo(self) -> list[tuple[str, ...]]:
        return [("tc", "qdisc", "del", "dev", self.device, "root", "handle", f"{MAJOR}:")]

    def do(self, commands: Commands) -> None:
        refuse_other(self.device, root(commands, self.device))
        try:
            plan.CommandStep.do(self, commands)
        except SourceError as error:
            if _UNKNOWN not in str(error):
                raise
            raise StagewatchError(_NO_NETEM) from error

    def undo(self, commands: Commands) -> list[str]:
        outermost = root(commands, self.device)
        if outermost is None:
            return [f"the device {self.device} is gone, and the rules with it"]
        if outermost.get("handle") != f"{MAJOR}:":
            return []
        for command in self.to_undo():
            commands.run(*command)
        return self.undoing()


def root(commands: Commands, device: str) -> dict[str, Any] | None:
    """The device's outermost queueing discipline; `None` if there is no such device."""
    done = commands.run("tc", "-j", "qdisc", "show", "dev", device, check=False)
    if done.returncode:
        if "Cannot find device" in done.stderr:
            return None
        raise SourceError(f"tc qdisc show dev {device} failed: {done.stderr.strip()[-300:]}")
    try:
        disciplines = json.loads(done.stdout or "[]")
        return next((one for one in disciplines if one.get("root")), {})
    except (ValueError, AttributeError) as error:
        raise SourceError(f"tc qdisc show dev {device}: {done.stdout[:200]!r}") from error


def refuse_other(device: str, outermost: dict[str, Any] | None) -> None:
    """Raise `StagewatchError` if the device has a discipline that we could not restore."""
    if outermost is None:
        raise StagewatchError(f"there is no network device {device}")
    if outermost.get("handle") == f"{MAJOR}:":
        raise StagewatchError(
            f"{device} has an injected fault already, and can have one only; see stagewatch "
            "fault list"
        )
    if outermost.get("handle", "0:") != "0:":
        raise StagewatchError(
            f"{device} has a queueing discipline of its own ({outermost.get('kind')} "
            f"{outermost.get('handle')}), which would be lost; remove it before, or use "
            "network-loss"
        )


def _require_admin() -> None:
    if _NET_ADMIN not in held():
        raise StagewatchError("needs root, or CAP_NET_ADMIN: it changes rules of the network")


def _peer(target: str) -> tuple[list[str], int]:
    """The peer's addresses, and its port (0: any)."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s/]+):(any|\d{1,5})", target)
    port = int(match[2]) if match and match[2] != "any" else 0
    if not match or port > 65535 or match[2].strip("0") == "":
        raise ConfigError(f"--target {target!r}: must be {_PEER}")
    host = match[1].strip("[]")
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise StagewatchError(f"--target {target}: {host} has no address: {error}") from error
    addresses = sorted({str(entry[4][0]).partition("%")[0] for entry in entries})
    for address in map(ipaddress.ip_address, addresses):
        if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
            raise StagewatchError(f"--target {target}: {address} is not the address of a peer")
    if len(addresses) > _MAX_ADDRESSES:
        raise StagewatchError(f"--target {target}: {host} has {len(addresses)} addresses: give one")
    _spare_own_connection(addresses, port)
    return addresses, port


def _spare_own_connection(addresses: list[str], port: int) -> None:
    """Refuse the connection through which the user is logged in."""
    client = os.environ.get("SSH_CONNECTION", "").split()
    if len(client) == 4 and client[0] in addresses and port in (0, int(client[1])):
        raise StagewatchError(
            f"refused: you are logged in from {client[0]}, and would cut yourself off; name a port"
        )


def _chain(request: plan.Request, tool: str, rules: list[tuple[str, ...]]) -> Chain:
    digest = hashlib.sha256(request.id.encode()).hexdigest()[:12]
    return Chain(
        tool=tool,
        hook="INPUT",
        name=f"STAGEWATCH-{digest}",
        rules=tuple(rules),
        comment=f"stagewatch fault {request.id}"[:255],
    )


def _netem(addresses: list[str], port: int, effect: tuple[str, ...]) -> Netem:
    if len(addresses) > 1:
        raise StagewatchError(
            f"the peer has several addresses, {', '.join(addresses)}: give the one that is used"
        )
    require("ip", "tc")
    commands = Commands(id="")
    answer = commands.run("ip", "-j", "route", "get", addresses[0], check=False)
    try:
        device = str(json.loads(answer.stdout)[0]["dev"])
    except (ValueError, LookupError) as error:
        raise SourceError(f"no way leads to {addresses[0]}: {answer.stderr.strip()}") from error
    return Netem(device, addresses[0], port, effect)


@dataclass(frozen=True, slots=True)
class DelayOptions:
    """Options of `network-delay`."""

    delay: float = option(0.1, "delay of each packet")
    jitter: float | None = option(
        None, "standard deviation of the delay, normally distributed", parse=duration
    )
    loss: plan.Percent | None = option(None, "share of the packets to drop too", parse=plan.percent)


def _delay(request: plan.Request, options: DelayOptions) -> plan.Plan:
    addresses, port = _peer(request.target)
    if options.delay > 60:
        raise ConfigError(f"--delay {options.delay:g}s: must be at most 60s")
    effect: tuple[str, ...] = ("delay", f"{options.delay * 1000:g}ms")
    if options.jitter is not None:
        effect += (f"{options.jitter * 1000:g}ms", "distribution", "normal")
    if options.loss is not None:
        effect += ("loss", str(options.loss))
    _require_admin()
    return plan.Plan((_netem(addresses, port, effect),), f"packets to {_words(addresses, port)}")


DELAY = plan.Kind(
    name="network-delay",
    help="delay packets to a peer, and drop some of them (tc, netem)",
    target=_PEER,
    plan=_delay,
    options=DelayOptions,
)


@dataclass(frozen=True, slots=True)
class LossOptions:
    """Options of `network-loss`."""

    loss: plan.Percent = option(
        plan.Percent(0.1), "share of the packets to drop", parse=plan.percent
    )


def _loss(request: plan.Request, options: LossOptions) -> plan.Plan:
    addresses, port = _peer(request.target)
    _require_admin()
    require("iptables")
    probability = ("--probability", f"{options.loss.ratio:.6f}")
    chance = ("-m", "statistic", "--mode", "random", *probability)
    ports = ("--sport", str(port)) if port else ()
    steps = []
    for tool, is_ipv6 in (("iptables", False), ("ip6tables", True)):
        rules = [
            ("-p", protocol, "-s", address, *ports, *chance)
            for address in addresses
            if (":" in address) is is_ipv6
            for protocol in (("tcp", "udp") if port else ("all",))
        ]
        if rules:
            steps.append(_chain(request, tool, rules))
    return plan.Plan(tuple(steps), f"packets from {_words(addresses, port)}")


def _words(addresses: list[str], port: int) -> str:
    return f"{', '.join(addresses)}, port {port or 'any'}"


LOSS = plan.Kind(
    name="network-loss",
    help="drop packets that arrive from a peer (iptables, statistic match)",
    target=_PEER,
    plan=_loss,
    options=LossOptions,
)


def _dns(request: plan.Request, _: NoOptions) -> plan.Plan:
    name = request.target.rstrip(".")
    labels = name.split(".")
    if not name or len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise DNS.refuse_target(request)
    if re.fullmatch(r"[\d.]+", name):
        raise ConfigError(f"--target {request.target!r}: is an address, which needs no resolving")
    if name.lower() in _hosts_names(Path("/etc/hosts")):
        raise StagewatchError(
            f"{name} is in /etc/hosts, so that no name server is asked: nothing would change"
        )
    _require_admin()
    require("iptables", "ip6tables")
    wire = "".join(f"|{len(label):02x}|{label}" for label in labels) + "|00|"
    rules: list[tuple[str, ...]] = [
        (
            *("-p", protocol, "--sport", "53", "-m", "string", "--algo", "bm", "--icase"),
            *("--hex-string", wire),
        )
        for protocol in ("udp", "tcp")
    ]
    steps = tuple(_chain(request, tool, rules) for tool in ("iptables", "ip6tables"))
    note = "a local cache still gives the answers that it has: inject before the name is asked for"
    return plan.Plan(steps, f"answers of name servers for {name}", (note,))


def _hosts_names(file: Path) -> set[str]:
    try:
        lines = file.read_text(errors="replace").lower().splitlines()
    except OSError:
        return set()
    return {name for line in lines for name in line.partition("#")[0].split()[1:]}


DNS = plan.Kind(
    name="dns",
    help="drop the answers of name servers for a name, so that it does not resolve here",
    target="the name, as metaserver.cluster.local",
    plan=_dns,
    options=NoOptions,
)
