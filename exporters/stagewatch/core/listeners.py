"""Which users listen on an address of this machine; see proc_pid_net(5)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path

_LISTENS = "0A"


def users_that_listen(host: str, port: int, net: Path = Path("/proc/self/net")) -> set[int]:
    """The users who hold a socket that accepts connections to this address; empty if there is none.

    The kernel lists listening sockets first, so few lines are read.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    return {
        uid
        for name in ("tcp", "tcp6")
        for where, uid in _listening(net / name, port)
        if where.is_unspecified or _plain(where) == _plain(address)
    }


def _listening(
    file: Path, port: int
) -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    try:
        lines = file.open("r")
    except OSError:  # a kernel without IPv6
        return
    with lines:
        next(lines, None)
        for line in lines:
            fields = line.split()
            if fields[3] != _LISTENS:
                return
            local, number = fields[1].split(":")
            if int(number, 16) == port:
                yield address_of(local), int(fields[7])


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address from words in the machine's byte order, little-endian."""
    words = bytes.fromhex(text)
    packed = b"".join(words[start : start + 4][::-1] for start in range(0, len(words), 4))
    return ipaddress.ip_address(packed)


def _plain(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The IPv4 address that an IPv6 address maps, else the address itself."""
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
