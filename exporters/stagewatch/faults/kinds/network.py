"""Delay and loss between this machine and one peer, and a name that does not resolve."""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import json
import os
import re
import socket
from pathlib import Path

from stagewatch.core.errors import ConfigError, SourceError, StagewatchError
from stagewatch.faults.commands import Commands, require
from stagewatch.faults.kinds.base import Kind, Plan, Request, duration, percent
from stagewatch.faults.kinds.iptables import Chain
from stagewatch.faults.kinds.netem import Netem
from stagewatch.faults.steps import Step

_NET_ADMIN = 12
_MAX_ADDRESSES = 8
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
PEER = "the peer as HOST:PORT, [IPV6]:PORT, or HOST:any for all its ports"


def _require_admin() -> None:
    status = Path("/proc/self/status").read_text()
    capabilities = int(re.findall(r"^CapEff:\s+([0-9a-f]+)$", status, re.MULTILINE)[0], 16)
    if not capabilities >> _NET_ADMIN & 1:
        raise StagewatchError("needs root, or CAP_NET_ADMIN: it changes rules of the network")


def _peer(target: str) -> tuple[list[str], int]:
    """Its addresses, and its port (0: any)."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s/]+):(any|\d{1,5})", target)
    port = int(match[2]) if match and match[2] != "any" else 0
    if not match or port > 65535 or match[2].strip("0") == "":
        raise ConfigError(f"--target {target!r}: must be {PEER}")
    host = match[1].strip("[]")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise StagewatchError(f"--target {target}: {host} has no address: {error}") from error
    addresses = sorted({str(each[4][0]).partition("%")[0] for each in found})
    for address in map(ipaddress.ip_address, addresses):
        if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
            raise StagewatchError(f"--target {target}: {address} is not the address of a peer")
    if len(addresses) > _MAX_ADDRESSES:
        raise StagewatchError(f"--target {target}: {host} has {len(addresses)} addresses: give one")
    _spare_own_connection(addresses, port)
    return addresses, port


def _spare_own_connection(addresses: list[str], port: int) -> None:
    """Not the way by which the one who asks is logged in."""
    client = os.environ.get("SSH_CONNECTION", "").split()
    if len(client) == 4 and client[0] in addresses and port in (0, int(client[1])):
        raise StagewatchError(
            f"refused: you are logged in from {client[0]}, and would cut yourself off; name a port"
        )


def _chain(request: Request, tool: str, rules: list[tuple[str, ...]]) -> Chain:
    digest = hashlib.sha256(request.id.encode()).hexdigest()[:12]
    return Chain(
        tool=tool,
        hook="INPUT",
        name=f"STAGEWATCH-{digest}",
        rules=tuple(rules),
        comment=f"stagewatch fault {request.id}"[:255],
    )


def _netem(addresses: list[str], port: int, effect: tuple[str, ...]) -> list[Step]:
    if len(addresses) > 1:
        raise StagewatchError(
            f"the peer has several addresses, {', '.join(addresses)}: give the one that is used"
        )
    require("ip", "tc", "unshare")
    commands = Commands(id="")
    answer = commands.run("ip", "-j", "route", "get", addresses[0], check=False)
    try:
        device = str(json.loads(answer.stdout)[0]["dev"])
    except (ValueError, LookupError) as error:
        raise SourceError(f"no way leads to {addresses[0]}: {answer.stderr.strip()}") from error
    return [Netem(device, addresses[0], port, effect)]


def _delay_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--delay", default="100ms", metavar="TIME", help="added to each packet [default: 100ms]"
    )
    parser.add_argument(
        "--jitter", metavar="TIME", help="the delay varies by so much, normally distributed"
    )
    parser.add_argument("--loss", metavar="PERCENT", help="lose so many packets as well")


def _delay(request: Request) -> Plan:
    options = request.options
    addresses, port = _peer(request.target)
    seconds = duration("--delay", options.delay)
    if seconds > 60:
        raise ConfigError(f"--delay {options.delay}: must be at most 60s")
    effect: tuple[str, ...] = ("delay", f"{seconds * 1000:g}ms")
    if options.jitter is not None:
        effect += (f"{duration('--jitter', options.jitter) * 1000:g}ms", "distribution", "normal")
    if options.loss is not None:
        effect += ("loss", f"{percent('--loss', options.loss) * 100:g}%")
    _require_admin()
    steps = _netem(addresses, port, effect)
    return Plan(tuple(steps), f"packets to {_words(addresses, port)}")


def _loss_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--loss", default="10%", metavar="PERCENT", help="share of the packets [default: 10%%]"
    )
    parser.add_argument(
        "--direction",
        choices=("in", "out", "both"),
        default="in",
        help="of packets that arrive from the peer (iptables), or of those sent to it, which needs "
        "netem: a packet that iptables drops on its way out is not lost to TCP, which is told and "
        "sends it again at once [default: in]",
    )


def _loss(request: Request) -> Plan:
    options = request.options
    addresses, port = _peer(request.target)
    share = percent("--loss", options.loss)
    _require_admin()
    steps: list[Step] = []
    if options.direction != "out":
        require("iptables")
        chance = ("-m", "statistic", "--mode", "random", "--probability", f"{share:.6f}")
        for tool, family in _by_family(addresses):
            rules = []
            for address in family:
                for protocol in ("tcp", "udp") if port else ("all",):
                    ports = ("--sport", str(port)) if port else ()
                    rules.append(("-p", protocol, "-s", address, *ports, *chance))
            steps.append(_chain(request, tool, rules))
    if options.direction != "in":
        steps += _netem(addresses, port, ("loss", f"{share * 100:g}%"))
    heading = {"in": "from", "out": "to", "both": "from and to"}[options.direction]
    return Plan(tuple(steps), f"packets {heading} {_words(addresses, port)}")


def _by_family(addresses: list[str]) -> list[tuple[str, list[str]]]:
    families = {
        "iptables": [address for address in addresses if ":" not in address],
        "ip6tables": [address for address in addresses if ":" in address],
    }
    return [(tool, found) for tool, found in families.items() if found]


def _words(addresses: list[str], port: int) -> str:
    return f"{', '.join(addresses)}, port {port or 'any'}"


def _dns(request: Request) -> Plan:
    name = request.target.rstrip(".")
    labels = name.split(".")
    if not name or len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise ConfigError(f"--target {request.target!r}: must be {DNS.target}")
    if re.fullmatch(r"[\d.]+", name):
        raise ConfigError(f"--target {request.target!r}: is an address, which needs no resolving")
    if name.lower() in _hosts_names(Path("/etc/hosts")):
        raise StagewatchError(
            f"{name} stands in /etc/hosts, so that no name server is asked: nothing would change"
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
    note = "answers that a local cache has already are still given: name it before it is asked for"
    return Plan(steps, f"answers of name servers for {name}", (note,))


def _hosts_names(file: Path) -> set[str]:
    try:
        lines = file.read_text(errors="replace").lower().splitlines()
    except OSError:
        return set()
    return {name for line in lines for name in line.partition("#")[0].split()[1:]}


DELAY = Kind(
    name="network-delay",
    help="delay what is sent to a peer (tc, netem)",
    target=PEER,
    plan=_delay,
    add_options=_delay_options,
)
LOSS = Kind(
    name="network-loss",
    help="lose packets of a peer (iptables, statistic match)",
    target=PEER,
    plan=_loss,
    add_options=_loss_options,
)
DNS = Kind(
    name="dns",
    help="let a name not resolve on this machine: answers of name servers for it are lost",
    target="the name, as metaserver.cluster.local",
    plan=_dns,
)
