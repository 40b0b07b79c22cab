"""Which users listen on an address of this machine; see proc_pid_net(5)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LISTENS = "0A"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that accepts connections; an unspecified address accepts them on any."""

    address: Address
    port: int
    uid: int
    inode: str


def listeners(net: Path = Path("/proc/self/net")) -> Iterator[Listener]:
    """All of them.  The kernel lists listening sockets first, so few lines are read."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (net / name).open("r")
        except OSError:  # a kernel without IPv6
            continue
        with lines:
            next(lines, None)
            for line in lines:
                fields = line.split()
                if fields[3] != _LISTENS:
                    break
                local, number = fields[1].split(":")
                yield Listener(address_of(local), int(number, 16), int(fields[7]), fields[9])


def users_that_listen(host: str, port: int, net: Path = Path("/proc/self/net")) -> set[int]:
    """The users with a socket that accepts connections to this address; empty if there is none."""
    wanted = _plain(ipaddress.ip_address(host.partition("%")[0]))
    return {
        one.uid
        for one in listeners(net)
        if one.port == port and (one.address.is_unspecified or _plain(one.address) == wanted)
    }


def address_of(text: str) -> Address:
    """An address from words in the machine's byte order, little-endian."""
    words = bytes.fromhex(text)
    packed = b"".join(words[start : start + 4][::-1] for start in range(0, len(words), 4))
    return ipaddress.ip_address(packed)


def _plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 address maps, else the address itself."""
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
